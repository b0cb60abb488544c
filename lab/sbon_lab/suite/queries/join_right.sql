-- A right join: hours of weather, with the late flights of each, if there were any.
SELECT w.ts, w.origin, w.temp, f.flight, f.dep_delay FROM flights f RIGHT JOIN weather w
ON f.origin = w.origin AND f.ts BETWEEN w.ts AND w.ts + INTERVAL 59 MINUTES AND f.dep_delay > 60
