-- A row that is in both parts comes twice.
SELECT ts, host FROM metrics WHERE cpu > 0.7e0 UNION ALL SELECT ts, host FROM metrics WHERE memory_mb > 15000
