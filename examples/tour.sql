-- The example of docs/tour: what the customers of each nation pay.

CREATE TABLE customers (cid INTEGER NOT NULL, nation VARCHAR NOT NULL);
CREATE TABLE orders (oid INTEGER NOT NULL, cid INTEGER NOT NULL, price BIGINT NOT NULL);

CREATE VIEW revenue AS
SELECT nation, COUNT(*) AS orders, SUM(price) AS revenue
FROM customers JOIN orders USING (cid)
GROUP BY nation;
