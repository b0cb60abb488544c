-- A join of three, each bound to the first.
SELECT d.ts, d.host, before.cpu AS cpu_before, after.cpu AS cpu_after
FROM deploys d JOIN metrics before ON before.host = d.host AND before.ts BETWEEN d.ts - INTERVAL 1 MINUTE AND d.ts
JOIN metrics after ON after.host = d.host AND after.ts BETWEEN d.ts AND d.ts + INTERVAL 1 MINUTE
