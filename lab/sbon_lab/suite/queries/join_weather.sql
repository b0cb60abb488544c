-- An interval join: flights with the weather of the hour before they left.
SELECT f.ts, f.carrier, f.flight, f.origin, f.dep_delay, w.temp, w.wind_speed
FROM flights f JOIN weather w ON f.origin = w.origin AND w.ts > f.ts - INTERVAL 1 HOUR AND w.ts <= f.ts
WHERE w.visib < 2 AND f.dep_delay > 10
-- duckdb
SELECT f.ts, f.carrier, f.flight, f.origin, f.dep_delay, w.temp, w.wind_speed
FROM flights f JOIN weather w ON f.origin = w.origin AND w.ts > f.ts - INTERVAL 1 HOUR AND w.ts <= f.ts
WHERE w.visib < 2 AND f.dep_delay > 10
