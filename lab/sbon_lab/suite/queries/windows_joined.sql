-- Two aggregates joined by their whole windows.
SELECT b.window.start AS s, b.n AS bids, a.n AS auctions
FROM (SELECT window, count(*) AS n FROM bid GROUP BY window(ts, '20 seconds')) b JOIN (SELECT window, count(*) AS n FROM auction GROUP BY window(ts, '20 seconds')) a
ON b.window = a.window
-- duckdb
SELECT s, b.n, a.n
FROM (SELECT time_bucket(INTERVAL 20 SECOND, ts) AS s, count(*) AS n FROM bid GROUP BY s) b
JOIN (SELECT time_bucket(INTERVAL 20 SECOND, ts) AS s, count(*) AS n FROM auction GROUP BY s) a USING (s)
