-- CASE in both forms, IF, and what stands in for a missing value.
SELECT ts, carrier, dep_delay,
       CASE WHEN dep_delay IS NULL THEN 'cancelled' WHEN dep_delay > 15 THEN 'late' ELSE 'on time' END AS state,
       CASE origin WHEN 'EWR' THEN 'NJ' WHEN 'JFK' THEN 'NY' END AS of_state,
       if(distance > 1000, 'far', 'near') AS reach, coalesce(arr_delay, dep_delay, 0) AS delay, nvl(tailnum, '?') AS tail, nvl2(tailnum, 1, 0) AS has_tail,
       nullif(dep_delay, 0) AS moved, ifnull(air_time, -1) AS flown, dep_delay BETWEEN -5 AND 5 AS punctual, carrier IN ('AA', 'UA', 'DL') AS major,
       zeroifnull(dep_delay) AS zero, isnull(arr_delay) AS unknown, isnotnull(arr_delay) AS known
FROM flights
WHERE CASE WHEN distance > 2000 THEN dep_delay IS NULL OR dep_delay > 30 ELSE flight % 2 = 0 END
-- duckdb
SELECT ts, carrier, dep_delay,
       CASE WHEN dep_delay IS NULL THEN 'cancelled' WHEN dep_delay > 15 THEN 'late' ELSE 'on time' END,
       CASE origin WHEN 'EWR' THEN 'NJ' WHEN 'JFK' THEN 'NY' END,
       CASE WHEN distance > 1000 THEN 'far' ELSE 'near' END, coalesce(arr_delay, dep_delay, 0), coalesce(tailnum, '?'), CASE WHEN tailnum IS NULL THEN 0 ELSE 1 END,
       nullif(dep_delay, 0), coalesce(air_time, -1), dep_delay BETWEEN -5 AND 5, carrier IN ('AA', 'UA', 'DL'),
       coalesce(dep_delay, 0), arr_delay IS NULL, arr_delay IS NOT NULL
FROM flights
WHERE CASE WHEN distance > 2000 THEN dep_delay IS NULL OR dep_delay > 30 ELSE flight % 2 = 0 END
