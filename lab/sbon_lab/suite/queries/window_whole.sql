-- A window that is selected as a whole has two columns.
SELECT window, host, max(memory_mb) AS most FROM metrics GROUP BY window(ts, '15 minutes'), host
-- duckdb
SELECT time_bucket(INTERVAL 15 MINUTE, ts) AS s, s + INTERVAL 15 MINUTE, host, max(memory_mb) FROM metrics GROUP BY s, host
