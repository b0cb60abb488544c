-- The group of rows without a partner would never end, since their time is missing.
SELECT date_trunc('hour', m.ts) AS h, count(*) AS n
FROM deploys d LEFT JOIN metrics m ON d.host = m.host AND m.ts BETWEEN d.ts AND d.ts + INTERVAL 1 MINUTE GROUP BY date_trunc('hour', m.ts)
-- refused: aggregate-without-window
