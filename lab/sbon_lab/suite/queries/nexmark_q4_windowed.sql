-- NEXMark query 4, average price of a category: of the auctions put up in each minute, bids for at most a minute.
SELECT window.start AS minute, category, avg(final) AS price
FROM (SELECT a.ts, a.category, max(b.price) AS final
      FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 MINUTE AND b.ts <= a.expires
      GROUP BY a.id, a.category, a.ts)
GROUP BY window(ts, '1 minute'), category
-- duckdb
SELECT time_bucket(INTERVAL 1 MINUTE, ts), category, avg(final)
FROM (SELECT a.ts, a.category, max(b.price) AS final
      FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires AND b.ts <= a.ts + INTERVAL 1 MINUTE
      GROUP BY a.id, a.category, a.ts)
GROUP BY ALL
