-- Two semi-joins, one above the other.
SELECT m.ts, m.host, m.cpu FROM metrics m
WHERE EXISTS (SELECT * FROM deploys d WHERE d.host = m.host AND d.ts BETWEEN m.ts - INTERVAL 5 MINUTES AND m.ts)
  AND m.host IN (SELECT o.host FROM metrics o WHERE o.ts = m.ts AND o.memory_mb > 4000)
