-- Two aggregates over different windows in one result.
SELECT window.start AS s, 'hour' AS unit, max(temp) AS most FROM weather GROUP BY window(ts, '1 hour')
UNION ALL
SELECT window.start, 'day', max(temp) FROM weather GROUP BY window(ts, '1 day')
-- duckdb
SELECT time_bucket(INTERVAL 1 HOUR, ts), 'hour', max(temp) FROM weather GROUP BY ALL
UNION ALL
SELECT time_bucket(INTERVAL 1 DAY, ts), 'day', max(temp) FROM weather GROUP BY ALL
