-- Windows that begin a quarter past the hour, and no key.
SELECT window.start AS s, window.end AS e, count(*) AS n, sum(distance) AS miles FROM flights GROUP BY window(ts, '1 hour', '1 hour', '15 minutes')
-- duckdb
SELECT time_bucket(INTERVAL 1 HOUR, ts, INTERVAL 15 MINUTE) AS s, s + INTERVAL 1 HOUR, count(*), sum(distance) FROM flights GROUP BY s
