-- HAVING over groups, on an aggregate that is shown and one that is not.
SELECT window.start AS hour, window.end AS until, origin, avg(arr_delay) AS delay
FROM flights GROUP BY window(ts, '2 hours'), origin HAVING avg(arr_delay) > 10 AND count(*) >= 20 AND origin <> 'LGA'
-- duckdb
SELECT time_bucket(INTERVAL 2 HOUR, ts) AS h, h + INTERVAL 2 HOUR, origin, avg(arr_delay)
FROM flights GROUP BY h, origin HAVING avg(arr_delay) > 10 AND count(*) >= 20 AND origin <> 'LGA'
