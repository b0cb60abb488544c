-- An inner join by keys that are NULL where none of several values is there.
SELECT f.ts, f.flight, f.origin, w.temp FROM flights f JOIN weather w
ON coalesce(nullif(f.origin, 'JFK'), nullif(f.carrier, 'B6')) = coalesce(nullif(w.origin, 'JFK'), nullif(w.origin, 'JFK'))
AND w.ts BETWEEN f.ts - INTERVAL 20 MINUTES AND f.ts
WHERE f.carrier IN ('B6', 'VX')
