-- Sliding windows whose length is no multiple of their step.
SELECT window.start AS s, window.end AS e, count(*) AS n, min(price) AS cheapest FROM bid GROUP BY window(ts, '25 seconds', '10 seconds', '3 seconds')
-- duckdb
SELECT s, s + INTERVAL 25 SECOND, count(*), min(price)
FROM (SELECT price, ts, time_bucket(INTERVAL 10 SECOND, ts, INTERVAL 3 SECOND) - i * INTERVAL 10 SECOND AS s FROM bid, range(3) AS r(i))
WHERE ts < s + INTERVAL 25 SECOND GROUP BY s
