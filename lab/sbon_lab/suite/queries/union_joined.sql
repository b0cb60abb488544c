-- A union as one side of a join.
SELECT e.ts, e.what, m.host, m.note
FROM (SELECT ts, host, concat('deployed ', version) AS what FROM deploys UNION ALL SELECT ts, host, 'full' FROM metrics WHERE disk_gb > 995) e
JOIN metrics m ON e.host = m.host AND m.ts BETWEEN e.ts - INTERVAL 1 MINUTE AND e.ts + INTERVAL 1 MINUTE
