-- A left join: flights without weather in the last 20 minutes stay, with nothing beside them; a condition of ON on the left side filters no row.
SELECT f.ts, f.flight, f.origin, w.temp, w.precip FROM flights f LEFT JOIN weather w
ON f.origin = w.origin AND w.ts BETWEEN f.ts - INTERVAL 20 MINUTES AND f.ts AND f.distance > 1000 AND w.humid > 50 WHERE f.carrier IN ('B6', 'VX')
