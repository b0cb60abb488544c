-- An aggregate of an aggregate over an outer join: each day's busiest and quietest hour of an airport, flights without weather included.
SELECT window.start AS that_day, max(n) AS most, min(n) AS fewest, sum(windy) AS windy
FROM (
  SELECT window, f.origin, count(*) AS n, count(w.wind_speed) AS windy FROM flights f LEFT JOIN weather w
  ON f.origin = w.origin AND w.ts BETWEEN f.ts - INTERVAL 20 MINUTES AND f.ts GROUP BY window(f.ts, '1 hour'), f.origin
) AS hourly
GROUP BY window(window_time(hourly.window), '1 day')
-- duckdb
SELECT time_bucket(INTERVAL 1 DAY, h) AS s, max(n), min(n), sum(windy)
FROM (
  SELECT time_bucket(INTERVAL 1 HOUR, f.ts) AS h, f.origin, count(*) AS n, count(w.wind_speed) AS windy
  FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND w.ts BETWEEN f.ts - INTERVAL 20 MINUTE AND f.ts GROUP BY ALL
)
GROUP BY s
