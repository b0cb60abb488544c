-- Tumbling windows: an average for each carrier and hour, over three airports.
SELECT window.start AS hour, carrier, count(*) AS flights, count(dep_delay) AS departed, avg(dep_delay) AS delay, max(distance) AS farthest
FROM flights GROUP BY window(ts, '1 hour'), carrier
-- duckdb
SELECT time_bucket(INTERVAL 1 HOUR, ts), carrier, count(*), count(dep_delay), avg(dep_delay), max(distance) FROM flights GROUP BY ALL
