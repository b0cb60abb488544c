-- A left join of a left join.
SELECT d.ts, d.host, d.version, m.cpu, n.memory_mb
FROM deploys d LEFT JOIN metrics m ON m.host = d.host AND m.ts BETWEEN d.ts AND d.ts + INTERVAL 40 SECONDS AND m.cpu > 0.4e0
LEFT JOIN metrics n ON n.host = d.host AND n.ts BETWEEN d.ts - INTERVAL 40 SECONDS AND d.ts AND n.memory_mb < 8000
