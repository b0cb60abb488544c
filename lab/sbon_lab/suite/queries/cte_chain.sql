-- Common table expressions, one of another.
WITH flown AS (SELECT ts, origin, dest, dep_delay, arr_delay FROM flights WHERE arr_delay IS NOT NULL),
     gained AS (SELECT ts, origin, dest, dep_delay - arr_delay AS made_up FROM flown)
SELECT origin, dest, made_up FROM gained WHERE made_up > 30 OR made_up < -90
