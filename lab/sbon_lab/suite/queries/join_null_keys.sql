-- A left join by expressions that turn some of the keys into NULL: those have no partner.
SELECT f.ts, f.flight, f.origin, w.temp FROM flights f LEFT JOIN weather w
ON nullif(f.origin, 'JFK') = nullif(w.origin, 'JFK') AND w.ts BETWEEN f.ts - INTERVAL 20 MINUTES AND f.ts
WHERE f.carrier IN ('B6', 'VX')
