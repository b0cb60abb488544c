-- HAVING names what the SELECT has named.
SELECT window.start AS s, dest, count(*) AS n, avg(arr_delay) AS delay FROM flights GROUP BY window(ts, '1 day'), dest HAVING n > 30 AND delay > 0
-- duckdb
SELECT time_bucket(INTERVAL 1 DAY, ts) AS s, dest, count(*) AS n, avg(arr_delay) AS delay FROM flights GROUP BY s, dest HAVING n > 30 AND delay > 0
