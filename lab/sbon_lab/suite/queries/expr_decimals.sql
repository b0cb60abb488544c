-- Decimals stay exact.
SELECT ts, host, disk_gb, disk_gb + 0.001 AS more, disk_gb * 3 AS three, disk_gb * disk_gb AS square, disk_gb - 500 AS over, round(disk_gb, 1) AS tenth,
       -disk_gb AS minus, abs(disk_gb - 500.5) AS off, disk_gb > 499.999 AS half, CAST(disk_gb AS DOUBLE) / 2e0 AS halved, disk_gb % 7 AS rest, floor(disk_gb) AS down
FROM metrics
WHERE disk_gb BETWEEN 100.5 AND 900.25
-- duckdb
SELECT ts, host, disk_gb, disk_gb + 0.001, disk_gb * 3, disk_gb * disk_gb, disk_gb - 500, round(disk_gb, 1),
       -disk_gb, abs(disk_gb - 500.5), disk_gb > 499.999, CAST(disk_gb AS DOUBLE) / 2, disk_gb % 7, floor(disk_gb)
FROM metrics
WHERE disk_gb BETWEEN 100.5 AND 900.25
