-- Volume-weighted price: the value of the best bids, those that less than a quarter of the volume outbids.
CREATE VIEW vwap AS
SELECT SUM(b1.price * b1.volume) AS vwap
FROM bids b1
WHERE 0.25 * (SELECT SUM(b3.volume) FROM bids b3) > (SELECT SUM(b2.volume) FROM bids b2 WHERE b2.price > b1.price);
