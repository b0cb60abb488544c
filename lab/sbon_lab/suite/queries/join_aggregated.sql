-- An aggregate over a join: delays by wind, each six hours.
SELECT window.start AS s, round(w.wind_speed / 10e0) AS wind, count(*) AS n, avg(f.dep_delay) AS delay
FROM flights f JOIN weather w ON f.origin = w.origin AND w.ts = date_trunc('hour', f.ts)
GROUP BY window(f.ts, '6 hours'), round(w.wind_speed / 10e0)
-- duckdb
SELECT time_bucket(INTERVAL 6 HOUR, f.ts) AS s, round(w.wind_speed / 10) AS wind, count(*), avg(f.dep_delay)
FROM flights f JOIN weather w ON f.origin = w.origin AND w.ts = date_trunc('hour', f.ts) GROUP BY s, wind
