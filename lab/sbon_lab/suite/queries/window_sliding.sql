-- Sliding windows: each row is in five of them.
SELECT window.start AS s, host, avg(cpu) AS load, count(*) AS n FROM metrics WHERE host LIKE '%-1' GROUP BY window(ts, '10 minutes', '2 minutes'), host
-- duckdb
SELECT time_bucket(INTERVAL 2 MINUTE, ts) - i * INTERVAL 2 MINUTE AS s, host, avg(cpu), count(*)
FROM metrics, range(5) AS r(i) WHERE host LIKE '%-1' GROUP BY s, host
