-- Groups by the hour under another name, with a second key and HAVING.
SELECT date_trunc('HOUR', ts) AS h, carrier AS airline, min(dep_delay) AS earliest FROM flights GROUP BY h, carrier HAVING min(dep_delay) > 0
-- duckdb
SELECT date_trunc('hour', ts) AS h, carrier, min(dep_delay) FROM flights GROUP BY h, carrier HAVING min(dep_delay) > 0
