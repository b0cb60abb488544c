-- A join of a stream with its own daily aggregate, between the ends of the day's window.
SELECT f.ts, f.flight, f.origin, d.n, d.longest
FROM flights f JOIN (SELECT window.start AS began, window.end AS ended, origin, count(*) AS n, max(distance) AS longest FROM flights GROUP BY window(ts, '1 day'), origin) d
ON f.origin = d.origin AND f.ts >= d.began AND f.ts < d.ended AND f.distance = d.longest
-- duckdb
SELECT f.ts, f.flight, f.origin, d.n, d.longest
FROM flights f JOIN (SELECT time_bucket(INTERVAL 1 DAY, ts) AS began, origin, count(*) AS n, max(distance) AS longest FROM flights GROUP BY ALL) d
ON f.origin = d.origin AND f.ts >= d.began AND f.ts < d.began + INTERVAL 1 DAY AND f.distance = d.longest
