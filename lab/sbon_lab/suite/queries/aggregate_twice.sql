-- An aggregate of aggregates: each day's busiest and quietest hour.
SELECT window.start AS that_day, origin, max(n) AS most, min(n) AS fewest, avg(n) AS mean
FROM (SELECT window, origin, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), origin) AS hourly
GROUP BY window(window_time(hourly.window), '1 day'), origin
-- duckdb
SELECT time_bucket(INTERVAL 1 DAY, h) AS s, origin, max(n), min(n), avg(n)
FROM (SELECT time_bucket(INTERVAL 1 HOUR, ts) AS h, origin, count(*) AS n FROM flights GROUP BY h, origin) GROUP BY s, origin
