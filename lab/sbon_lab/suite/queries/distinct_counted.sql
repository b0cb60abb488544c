-- How many different values there are: an aggregate over DISTINCT.
SELECT window.start AS s, count(*) AS destinations
FROM (SELECT DISTINCT window(ts, '12 hours'), dest FROM flights) AS each GROUP BY window
-- duckdb
SELECT time_bucket(INTERVAL 12 HOUR, ts) AS s, count(DISTINCT dest) FROM flights GROUP BY s
