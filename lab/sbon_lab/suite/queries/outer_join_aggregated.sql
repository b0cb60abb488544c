-- An aggregate over an outer join: rows without a partner are counted too.
SELECT window.start AS s, d.host, count(*) AS pairs, count(m.ts) AS loads, max(m.cpu) AS most
FROM deploys d LEFT JOIN metrics m ON d.host = m.host AND m.ts BETWEEN d.ts AND d.ts + INTERVAL 3 MINUTES AND m.cpu > 0.3e0
GROUP BY window(d.ts, '30 minutes'), d.host
-- duckdb
SELECT time_bucket(INTERVAL 30 MINUTE, d.ts) AS s, d.host, count(*), count(m.ts), max(m.cpu)
FROM deploys d LEFT JOIN metrics m ON d.host = m.host AND m.ts BETWEEN d.ts AND d.ts + INTERVAL 3 MINUTE AND m.cpu > 0.3
GROUP BY s, d.host
