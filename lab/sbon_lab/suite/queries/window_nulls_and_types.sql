-- Aggregates of decimals, dates and texts, of groups whose key is missing, and of nothing but missing values.
SELECT window.start AS s, note, sum(disk_gb) AS total, avg(disk_gb) AS mean, min(installed) AS first_day, max(installed) AS last_day, max(note) AS greatest_note,
       count(cpu) AS measured, avg(CASE WHEN cpu > 2e0 THEN cpu END) AS none, sum(nullif(memory_mb, memory_mb)) AS no_sum, count(*) AS n
FROM metrics GROUP BY window(ts, '30 minutes'), note
-- duckdb
SELECT time_bucket(INTERVAL 30 MINUTE, ts) AS s, note, sum(disk_gb), CAST(sum(disk_gb) / count(disk_gb) AS DECIMAL(18, 7)), min(installed), max(installed), max(note),
       count(cpu), NULL, NULL, count(*)
FROM metrics GROUP BY s, note
