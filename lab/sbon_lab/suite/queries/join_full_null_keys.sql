-- A full join whose keys are often NULL: what has none has no partner, least of all another without one.
SELECT d.ts AS deployed, d.host, d.version, m.ts, m.host AS of_host, m.cpu
FROM (SELECT ts, nullif(host, 'ewr-1') AS host, version FROM deploys WHERE canary) d
FULL JOIN (SELECT ts, nullif(host, 'ewr-1') AS host, cpu FROM metrics WHERE cpu > 0.75e0) m
ON d.host = m.host AND m.ts BETWEEN d.ts AND d.ts + INTERVAL 15 MINUTES
