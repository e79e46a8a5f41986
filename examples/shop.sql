-- Example 2.1 of the Cumulus consistency paper: what each nation's customers pay, while customers, orders and items come and go.

CREATE TABLE customers (
  cid INTEGER NOT NULL,
  nation VARCHAR NOT NULL
);

CREATE TABLE orders (
  cid INTEGER NOT NULL,
  oid INTEGER NOT NULL,
  discount DECIMAL(4,2) NOT NULL   -- what is left of the price: 0.90 is ten per cent off
);

CREATE TABLE lineitem (
  oid INTEGER NOT NULL,
  price DECIMAL(15,2) NOT NULL
);

CREATE VIEW revenue AS
SELECT nation, SUM(discount * price) AS revenue
FROM customers c, orders o, lineitem l
WHERE c.cid = o.cid AND o.oid = l.oid
GROUP BY nation;
