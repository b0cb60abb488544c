-- Two aggregates joined by their windows: departures of an hour beside its weather.
SELECT f.hour, f.origin, f.n, f.delay, w.temp
FROM (SELECT window.start AS hour, origin, count(*) AS n, avg(dep_delay) AS delay FROM flights GROUP BY window(ts, '3 hours'), origin) f
JOIN (SELECT window.start AS hour, origin, min(temp) AS temp FROM weather GROUP BY window(ts, '3 hours'), origin) w
ON f.hour = w.hour AND f.origin = w.origin
-- duckdb
SELECT f.hour, f.origin, f.n, f.delay, w.temp
FROM (SELECT time_bucket(INTERVAL 3 HOUR, ts) AS hour, origin, count(*) AS n, avg(dep_delay) AS delay FROM flights GROUP BY ALL) f
JOIN (SELECT time_bucket(INTERVAL 3 HOUR, ts) AS hour, origin, min(temp) AS temp FROM weather GROUP BY ALL) w
ON f.hour = w.hour AND f.origin = w.origin
