-- Groups by expressions, and expressions over aggregates.
SELECT window.start AS s, CASE WHEN distance < 500 THEN 'short' WHEN distance < 1500 THEN 'middle' ELSE 'long' END AS reach, upper(substring(dest, 1, 1)) AS letter,
       count_if(dep_delay > 15) * 100e0 / count(dep_delay) AS late_percent, max(arr_delay) - min(arr_delay) AS spread,
       CASE WHEN avg(dep_delay) > 20 THEN 'bad' ELSE 'good' END AS verdict, coalesce(sum(air_time), 0) AS minutes
FROM flights
GROUP BY window(ts, '1 day'), CASE WHEN distance < 500 THEN 'short' WHEN distance < 1500 THEN 'middle' ELSE 'long' END, upper(substring(dest, 1, 1))
HAVING count(dep_delay) > 0
-- duckdb
SELECT time_bucket(INTERVAL 1 DAY, ts) AS s, CASE WHEN distance < 500 THEN 'short' WHEN distance < 1500 THEN 'middle' ELSE 'long' END AS reach, upper(dest[1]) AS letter,
       count_if(dep_delay > 15) * 100.0 / count(dep_delay), max(arr_delay) - min(arr_delay),
       CASE WHEN avg(dep_delay) > 20 THEN 'bad' ELSE 'good' END, coalesce(sum(air_time), 0)
FROM flights GROUP BY s, reach, letter HAVING count(dep_delay) > 0
