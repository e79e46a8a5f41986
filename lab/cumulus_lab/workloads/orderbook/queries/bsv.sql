-- Broker spread variance: half the sum of products of the values of a broker's bids.
CREATE VIEW bsv AS
SELECT x.broker_id, SUM(x.volume * x.price * y.volume * y.price * 0.5) AS bsv
FROM bids x, bids y
WHERE x.broker_id = y.broker_id
GROUP BY x.broker_id;
