-- Flights with the weather of their hour, grouped by it.
SELECT date_trunc('hour', f.ts) AS h, f.origin, count(*) AS n, avg(f.dep_delay) AS delay, max(w.wind_speed) AS wind
FROM flights f JOIN weather w ON f.origin = w.origin AND date_trunc('hour', f.ts) = w.ts GROUP BY date_trunc('hour', f.ts), f.origin
