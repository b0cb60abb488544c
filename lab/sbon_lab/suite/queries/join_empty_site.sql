-- A join with a stream that has no rows at one of its sites: metrics in the ten minutes after a deployment.
SELECT d.ts AS deployed, d.host, d.version, d.minutes, m.ts, m.cpu
FROM deploys d JOIN metrics m ON d.host = m.host AND m.ts BETWEEN d.ts AND d.ts + INTERVAL 10 MINUTES WHERE d.canary IS NOT FALSE
-- duckdb
SELECT d.ts, d.host, d.version, d.minutes, m.ts, m.cpu
FROM deploys d JOIN metrics m ON d.host = m.host AND m.ts BETWEEN d.ts AND d.ts + INTERVAL 10 MINUTE WHERE d.canary IS DISTINCT FROM false
