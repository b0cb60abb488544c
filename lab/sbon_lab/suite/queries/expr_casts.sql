-- From one type to another, and what cannot be is NULL where it is tried.
SELECT ts, host, CAST(cpu * 1000e0 AS INT) AS permille, CAST(memory_mb AS STRING) AS text, CAST(memory_mb AS DOUBLE) AS real_number, CAST(disk_gb AS INT) AS whole,
       CAST(disk_gb AS DECIMAL(12, 1)) AS rounded, CAST(ts AS DATE) AS that_day, CAST(installed AS STRING) AS iso, CAST(healthy AS INT) AS flag,
       TRY_CAST(note AS DOUBLE) AS number, bigint(memory_mb) AS big, CAST('12' AS SMALLINT) AS small, CAST(ts AS STRING) AS written,
       CAST(installed AS TIMESTAMP) AS midnight, CAST(memory_mb AS BIGINT) * 1000000000 AS huge, string(healthy) AS word
FROM metrics
-- duckdb
SELECT ts, host, CAST(trunc(cpu * 1000.0::DOUBLE) AS INT), CAST(memory_mb AS VARCHAR), CAST(memory_mb AS DOUBLE), CAST(trunc(disk_gb) AS INT),
       CAST(disk_gb AS DECIMAL(12, 1)), CAST(ts AS DATE), CAST(installed AS VARCHAR), CAST(healthy AS INT),
       TRY_CAST(note AS DOUBLE), CAST(memory_mb AS BIGINT), CAST(12 AS SMALLINT), strftime(ts, '%Y-%m-%d %H:%M:%S'),
       CAST(installed AS TIMESTAMP), CAST(memory_mb AS BIGINT) * 1000000000, CAST(healthy AS VARCHAR)
FROM metrics
