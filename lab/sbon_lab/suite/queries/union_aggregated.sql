-- An aggregate over a union of three streams.
SELECT window.start AS s, kind, count(*) AS n
FROM (SELECT ts, 'person' AS kind FROM person UNION ALL SELECT ts, 'auction' FROM auction UNION ALL SELECT ts, 'bid' FROM bid WHERE price > 100000) AS events
GROUP BY window(ts, '20 seconds'), kind
-- duckdb
SELECT time_bucket(INTERVAL 20 SECOND, ts) AS s, kind, count(*)
FROM (SELECT ts, 'person' AS kind FROM person UNION ALL SELECT ts, 'auction' FROM auction UNION ALL SELECT ts, 'bid' FROM bid WHERE price > 100000)
GROUP BY s, kind
