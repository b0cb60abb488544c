-- A semi-join by expressions that turn some of the keys into NULL: those have no partner.
SELECT f.ts, f.flight, f.origin FROM flights f
WHERE f.carrier IN ('B6', 'VX') AND EXISTS (
  SELECT 1 FROM weather w
  WHERE nullif(w.origin, 'JFK') = nullif(f.origin, 'JFK') AND w.ts BETWEEN f.ts - INTERVAL 20 MINUTES AND f.ts
)
