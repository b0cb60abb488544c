-- A full join: deployments and load beside each other, each also alone.
SELECT d.ts AS deployed, d.host, d.version, m.ts, m.host AS of_host, m.cpu
FROM (SELECT * FROM deploys WHERE canary) d FULL JOIN (SELECT * FROM metrics WHERE cpu > 0.75e0) m
ON d.host = m.host AND m.ts BETWEEN d.ts AND d.ts + INTERVAL 15 MINUTES
