-- A right join whose ON asks something of the key: rows of the right side without that stay, with nothing beside them.
SELECT d.ts AS deployed, d.host, d.version, m.ts, m.host AS of_host, m.cpu
FROM (SELECT * FROM deploys WHERE canary) d RIGHT JOIN (SELECT * FROM metrics WHERE cpu > 0.75e0) m
ON d.host = m.host AND d.host > 'f' AND m.ts BETWEEN d.ts AND d.ts + INTERVAL 15 MINUTES
