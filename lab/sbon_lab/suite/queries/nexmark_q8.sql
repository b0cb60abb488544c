-- NEXMark query 8, monitor new users: who registered and put up an auction within the same ten seconds.
SELECT p.id, p.name, p.starttime
FROM (SELECT id, name, window.start AS starttime, window.end AS endtime FROM person GROUP BY window(ts, '10 seconds'), id, name) AS p
JOIN (SELECT seller, window.start AS starttime, window.end AS endtime FROM auction GROUP BY window(ts, '10 seconds'), seller) AS a
ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime
-- duckdb
SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL 10 SECOND, p.ts)
FROM person AS p JOIN auction AS a ON p.id = a.seller AND time_bucket(INTERVAL 10 SECOND, p.ts) = time_bucket(INTERVAL 10 SECOND, a.ts)
