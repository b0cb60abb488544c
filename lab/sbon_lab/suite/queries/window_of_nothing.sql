-- A window over a filter that no row passes: no groups, and an end.
SELECT window.start AS s, count(*) AS n FROM metrics WHERE memory_mb < 0 GROUP BY window(ts, '1 minute')
-- duckdb
SELECT ts, count(*) FROM metrics WHERE memory_mb < 0 GROUP BY ts
