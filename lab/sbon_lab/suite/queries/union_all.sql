-- Rows of different streams in one result.
SELECT ts, origin AS place, CAST(dep_delay AS DOUBLE) AS value FROM flights WHERE dep_delay > 120
UNION ALL
SELECT ts, host, cpu FROM metrics WHERE cpu > 0.8e0
UNION ALL
SELECT ts, origin, temp FROM weather WHERE temp < 25e0
