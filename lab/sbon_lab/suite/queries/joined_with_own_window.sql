-- A join of a stream with its own aggregate by window: the host with the most memory in each ten minutes.
SELECT m.ts, m.host, m.memory_mb
FROM metrics m JOIN (SELECT window.start AS began, window.end AS ended, max(memory_mb) AS most FROM metrics GROUP BY window(ts, '10 minutes')) w
ON m.memory_mb = w.most AND m.ts >= w.began AND m.ts < w.began + INTERVAL 10 MINUTES
-- duckdb
SELECT m.ts, m.host, m.memory_mb
FROM metrics m JOIN (SELECT time_bucket(INTERVAL 10 MINUTE, ts) AS began, max(memory_mb) AS most FROM metrics GROUP BY ALL) w
ON m.memory_mb = w.most AND m.ts >= w.began AND m.ts < w.began + INTERVAL 10 MINUTE
