-- DISTINCT within a window.
SELECT DISTINCT window(ts, '6 hours').start AS s, carrier, origin FROM flights WHERE dep_delay > 30
-- duckdb
SELECT DISTINCT time_bucket(INTERVAL 6 HOUR, ts), carrier, origin FROM flights WHERE dep_delay > 30
