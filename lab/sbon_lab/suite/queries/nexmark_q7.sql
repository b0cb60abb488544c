-- NEXMark query 7, highest bid of each ten seconds, with its bidder.
SELECT b.auction, b.price, b.bidder, b.ts
FROM bid AS b JOIN (SELECT max(price) AS maxprice, window.end AS until FROM bid GROUP BY window(ts, '10 seconds')) AS highest
ON b.price = highest.maxprice AND b.ts BETWEEN highest.until - INTERVAL 10 SECONDS AND highest.until
-- duckdb
WITH highest AS (SELECT max(price) AS maxprice, time_bucket(INTERVAL 10 SECOND, ts) + INTERVAL 10 SECOND AS until FROM bid GROUP BY ALL)
SELECT b.auction, b.price, b.bidder, b.ts
FROM bid AS b JOIN highest ON b.price = highest.maxprice AND b.ts BETWEEN highest.until - INTERVAL 10 SECOND AND highest.until
