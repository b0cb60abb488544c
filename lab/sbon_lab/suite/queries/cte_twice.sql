-- A common table expression read twice: each hour beside the one before.
WITH hourly AS (SELECT window.start AS h, origin, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), origin)
SELECT a.h, a.origin, a.n, b.n AS before FROM hourly a JOIN hourly b ON a.origin = b.origin AND b.h = a.h - INTERVAL 1 HOUR
-- duckdb
WITH hourly AS (SELECT time_bucket(INTERVAL 1 HOUR, ts) AS h, origin, count(*) AS n FROM flights GROUP BY ALL)
SELECT a.h, a.origin, a.n, b.n AS before FROM hourly a JOIN hourly b ON a.origin = b.origin AND b.h = a.h - INTERVAL 1 HOUR
