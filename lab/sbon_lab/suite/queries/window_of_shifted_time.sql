-- Windows over the event time plus half an hour.
SELECT window.start AS s, origin, count(*) AS n FROM flights GROUP BY window(ts + INTERVAL 30 MINUTES, '6 hours'), origin
-- duckdb
SELECT time_bucket(INTERVAL 6 HOUR, ts + INTERVAL 30 MINUTE) AS s, origin, count(*) FROM flights GROUP BY s, origin
