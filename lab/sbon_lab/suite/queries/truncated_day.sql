-- Groups by the day, without a window.
SELECT date_trunc('day', ts) AS that_day, origin, count(*) AS n, count(dep_delay) AS departed FROM flights GROUP BY date_trunc('day', ts), origin
