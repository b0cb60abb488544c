-- Queries and what they are cut into. Each block: "-- query", the SQL, a line for each operator up to a line of "--".
-- query
SELECT carrier, dep_delay * 2 AS d FROM flights WHERE dep_delay > 60 AND origin = 'JFK'
o0 = SELECT carrier, dep_delay * 2 AS d FROM in0 WHERE dep_delay > 60 AND origin = 'JFK' [in0: flights]
--
-- query
SELECT window.start AS s, carrier, avg(dep_delay) AS a, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), carrier HAVING count(*) > 3 AND carrier <> 'AA'
o0 = SELECT ts, carrier, dep_delay FROM in0 WHERE carrier <> 'AA' [in0: flights]
o1 = SELECT window_start AS s, carrier, avg AS a, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, carrier, avg(dep_delay) AS avg, count(*) AS count FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), carrier) AS groups WHERE count > 3 [in0: o0 by ts less 0 ms]
--
-- query
SELECT f.carrier, w.temp FROM flights f JOIN weather w ON f.origin = w.origin AND w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts WHERE f.dep_delay > 60 AND w.temp < 0
o0 = SELECT ts, carrier, origin FROM in0 WHERE dep_delay > 60 [in0: flights]
o1 = SELECT ts, origin, temp FROM in0 WHERE temp < 0 [in0: weather]
o2 = SELECT in0.carrier, in1.temp FROM in0 JOIN in1 ON in0.origin = in1.origin AND (in1.ts BETWEEN in0.ts - INTERVAL '1' HOUR AND in0.ts) [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
--
-- query
SELECT f.carrier, w.temp FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts AND w.wind > 20 AND f.distance > 500 WHERE f.dep_delay > 60 AND w.temp IS NULL
o0 = SELECT ts, carrier, origin, distance > 500 AS holds_1 FROM in0 WHERE dep_delay > 60 [in0: flights]
o1 = SELECT ts, origin, temp FROM in0 WHERE wind > 20 [in0: weather]
o2 = SELECT in0.carrier, in1.temp FROM in0 LEFT JOIN in1 ON in0.origin = in1.origin AND (in1.ts BETWEEN in0.ts - INTERVAL '1' HOUR AND in0.ts) AND in0.holds_1 WHERE in1.temp IS NULL [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
--
-- query
SELECT f.carrier, w.temp FROM flights f RIGHT JOIN weather w ON f.origin = w.origin AND w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts AND f.distance > 500 WHERE w.temp < 0
o0 = SELECT ts, carrier, origin FROM in0 WHERE distance > 500 [in0: flights]
o1 = SELECT ts, origin, temp FROM in0 WHERE temp < 0 [in0: weather]
o2 = SELECT in0.carrier, in1.temp FROM in0 RIGHT JOIN in1 ON in0.origin = in1.origin AND (in1.ts BETWEEN in0.ts - INTERVAL '1' HOUR AND in0.ts) [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
--
-- query
SELECT f.carrier, w.temp FROM flights f FULL JOIN weather w ON f.origin = w.origin AND w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts AND w.wind > 20 WHERE f.dep_delay > 60
o0 = SELECT ts, carrier, origin, dep_delay FROM in0 [in0: flights]
o1 = SELECT ts, origin, temp, wind > 20 AS holds_1 FROM in0 [in0: weather]
o2 = SELECT in0.carrier, in1.temp FROM in0 FULL JOIN in1 ON in0.origin = in1.origin AND (in1.ts BETWEEN in0.ts - INTERVAL '1' HOUR AND in0.ts) AND in1.holds_1 AND (NOT in0.origin IS NULL) AND (NOT in1.origin IS NULL) WHERE in0.dep_delay > 60 [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
--
-- query
SELECT p.name, a.id FROM auction a JOIN person p ON a.seller = p.id AND p.ts BETWEEN a.ts - INTERVAL '1' DAY AND a.ts WHERE mod(a.seller, 4) = 0
o0 = SELECT ts, id, seller FROM in0 WHERE mod(seller, 4) = 0 [in0: auction]
o1 = SELECT ts, id, name FROM in0 WHERE mod(id, 4) = 0 [in0: person]
o2 = SELECT in1.name, in0.id FROM in0 JOIN in1 ON in0.seller = in1.id AND (in1.ts BETWEEN in0.ts - INTERVAL '1' DAY AND in0.ts) [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
--
-- query
SELECT b.price, a.category, p.name FROM bid b JOIN auction a ON b.auction = a.id AND a.ts BETWEEN b.ts - INTERVAL 1 HOUR AND b.ts JOIN person p ON p.id = a.seller AND p.ts BETWEEN a.ts - INTERVAL 1 HOUR AND a.ts
o0 = SELECT ts, auction, price FROM in0 [in0: bid]
o1 = SELECT ts, id, seller, category FROM in0 [in0: auction]
o2 = SELECT in0.price, in1.ts AS a_ts, in1.seller, in1.category FROM in0 JOIN in1 ON in0.auction = in1.id AND (in1.ts BETWEEN in0.ts - INTERVAL '1' HOUR AND in0.ts) [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
o3 = SELECT ts, id, name FROM in0 [in0: person]
o4 = SELECT in0.price, in0.category, in1.name FROM in0 JOIN in1 ON in1.id = in0.seller AND (in1.ts BETWEEN in0.a_ts - INTERVAL '1' HOUR AND in0.a_ts) [in0: o2 by a_ts less 3600001 ms; in1: o3 by ts less 0 ms]
--
-- query
SELECT window.start, avg(n) AS m FROM (SELECT window, carrier, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), carrier) AS h GROUP BY window(window_time(h.window), '1 day')
o0 = SELECT ts, carrier FROM in0 [in0: flights]
o1 = SELECT count AS n, window_end - INTERVAL '1' MICROSECOND AS event_time FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, carrier, count(*) AS count FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), carrier) AS groups [in0: o0 by ts less 0 ms]
o2 = SELECT window_start_2 AS start, avg AS m FROM (SELECT `window`.start AS window_start_2, `window`.`end` AS window_end_2, avg(n) AS avg FROM in0 GROUP BY window(event_time, '86400000 milliseconds', '86400000 milliseconds', '0 milliseconds')) AS groups [in0: o1 by event_time less 1 ms]
--
-- query
SELECT window.start, max(n) AS m FROM (SELECT window, carrier, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), carrier) GROUP BY window
o0 = SELECT ts, carrier FROM in0 [in0: flights]
o1 = SELECT window_start, window_end, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, carrier, count(*) AS count FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), carrier) AS groups [in0: o0 by ts less 0 ms]
o2 = SELECT window_start AS start, max AS m FROM (SELECT window_start, window_end, max(n) AS max FROM in0 GROUP BY window_start, window_end) AS groups [in0: o1 by window_end less 0 ms]
--
-- query
SELECT * FROM flights WHERE EXISTS (SELECT 1 FROM weather w WHERE w.origin = flights.origin AND w.ts BETWEEN flights.ts - INTERVAL 1 HOUR AND flights.ts AND wind > 20)
o0 = SELECT ts, carrier, origin, dep_delay, distance FROM in0 [in0: flights]
o1 = SELECT ts, origin FROM in0 WHERE wind > 20 [in0: weather]
o2 = SELECT in0.ts, in0.carrier, in0.origin, in0.dep_delay, in0.distance FROM in0 LEFT SEMI JOIN in1 ON in1.origin = in0.origin AND (in1.ts BETWEEN in0.ts - INTERVAL '1' HOUR AND in0.ts) [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
--
-- query
SELECT carrier FROM flights WHERE origin IN (SELECT origin FROM weather w WHERE w.ts = flights.ts)
o0 = SELECT ts, carrier, origin FROM in0 [in0: flights]
o1 = SELECT ts, origin FROM in0 [in0: weather]
o2 = SELECT in0.carrier FROM in0 LEFT SEMI JOIN in1 ON in1.ts = in0.ts AND in0.origin = in1.origin [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
--
-- query
SELECT ts, origin FROM flights WHERE distance > 9 UNION ALL SELECT ts, origin FROM weather
o0 = SELECT ts, origin FROM in0 WHERE distance > 9 [in0: flights]
o1 = SELECT ts, origin FROM in0 [in0: weather]
--
-- query
SELECT window.start, origin, count(*) AS n FROM (SELECT ts, origin FROM flights UNION ALL SELECT ts, origin FROM weather) WHERE origin <> 'JFK' GROUP BY window(ts, '1 hour', '15 minutes'), origin
o0 = SELECT ts, origin FROM in0 WHERE origin <> 'JFK' [in0: flights]
o1 = SELECT ts, origin FROM in0 WHERE origin <> 'JFK' [in0: weather]
o2 = SELECT window_start AS start, origin, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, origin, count(*) AS count FROM in0 GROUP BY window(ts, '3600000 milliseconds', '900000 milliseconds', '0 milliseconds'), origin) AS groups [in0: o0, o1 by ts less 0 ms]
--
-- query
WITH late AS (SELECT * FROM flights WHERE dep_delay > 60) SELECT a.carrier, b.carrier AS other FROM late a, late b WHERE a.origin = b.origin AND a.ts = b.ts
o0 = SELECT ts, carrier, origin FROM in0 WHERE dep_delay > 60 [in0: flights]
o1 = SELECT in0.carrier, in1.carrier AS other FROM in0 JOIN in1 ON in0.origin = in1.origin AND in0.ts = in1.ts [in0: o0 by ts less 0 ms; in1: o0 by ts less 0 ms]
--
-- query
SELECT DISTINCT window(ts, '1 hour').start AS s, carrier FROM flights
o0 = SELECT ts, carrier FROM in0 [in0: flights]
o1 = SELECT window_start AS s, carrier FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, carrier FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), carrier) AS groups [in0: o0 by ts less 0 ms]
--
-- query
SELECT session_window.start, carrier, count(*) AS n FROM flights GROUP BY session_window(ts, '10 minutes'), carrier
o0 = SELECT ts, carrier FROM in0 [in0: flights]
o1 = SELECT session_window_start AS start, carrier, count AS n FROM (SELECT session_window.start AS session_window_start, session_window.`end` AS session_window_end, carrier, count(*) AS count FROM in0 GROUP BY session_window(ts, '600000 milliseconds'), carrier) AS groups [in0: o0 by ts less 0 ms]
--
-- query
SELECT session_window.start AS s, count(*) AS n FROM flights GROUP BY session_window(ts, '10 minutes') HAVING count(*) > 1
o0 = SELECT ts FROM in0 [in0: flights]
o1 = SELECT session_window_start AS s, count AS n FROM (SELECT session_window.start AS session_window_start, session_window.`end` AS session_window_end, count(*) AS count FROM in0 GROUP BY session_window(ts, '600000 milliseconds'), ts IS NULL) AS groups WHERE count > 1 [in0: o0 by ts less 0 ms]
--
-- query
SELECT session_window.end AS e, count(*) AS n FROM (SELECT ts FROM flights UNION ALL SELECT ts FROM weather) GROUP BY session_window(ts, '10 minutes')
o0 = SELECT ts FROM in0 [in0: flights]
o1 = SELECT ts FROM in0 [in0: weather]
o2 = SELECT session_window_end AS e, count AS n FROM (SELECT session_window.start AS session_window_start, session_window.`end` AS session_window_end, count(*) AS count FROM in0 GROUP BY session_window(ts, '600000 milliseconds'), ts IS NULL) AS groups [in0: o0, o1 by ts less 0 ms]
--
-- query
SELECT DISTINCT session_window(ts, '10 minutes').start AS s FROM flights
o0 = SELECT ts FROM in0 [in0: flights]
o1 = SELECT session_window_start AS s FROM (SELECT session_window.start AS session_window_start, session_window.`end` AS session_window_end FROM in0 GROUP BY session_window(ts, '600000 milliseconds'), ts IS NULL) AS groups [in0: o0 by ts less 0 ms]
--
-- query
SELECT session_window.start AS s, count(*) AS n FROM flights GROUP BY session_window(ts, '10 minutes'), upper('a')
o0 = SELECT ts FROM in0 [in0: flights]
o1 = SELECT session_window_start AS s, count AS n FROM (SELECT session_window.start AS session_window_start, session_window.`end` AS session_window_end, upper('a') AS key, count(*) AS count FROM in0 GROUP BY session_window(ts, '600000 milliseconds'), upper('a'), ts IS NULL) AS groups [in0: o0 by ts less 0 ms]
--
-- query
SELECT session_window.start AS s, coalesce('x', carrier) AS c, count(*) AS n FROM flights GROUP BY session_window(ts, '10 minutes'), coalesce('x', carrier)
o0 = SELECT ts, carrier FROM in0 [in0: flights]
o1 = SELECT session_window_start AS s, key AS c, count AS n FROM (SELECT session_window.start AS session_window_start, session_window.`end` AS session_window_end, coalesce('x', carrier) AS key, count(*) AS count FROM in0 GROUP BY session_window(ts, '600000 milliseconds'), coalesce('x', carrier), ts IS NULL) AS groups [in0: o0 by ts less 0 ms]
--
-- query
SELECT date_trunc('hour', ts) AS h, count(*) AS n FROM flights GROUP BY h
o0 = SELECT date_trunc('hour', ts) AS time_1 FROM in0 [in0: flights]
o1 = SELECT key AS h, count AS n FROM (SELECT time_1 AS key, count(*) AS count FROM in0 GROUP BY time_1) AS groups [in0: o0 by time_1 less 3600000 ms]
--
-- query
SELECT o.h, o.n, f.carrier FROM (SELECT date_trunc('hour', ts) AS h, origin, count(*) AS n FROM flights GROUP BY date_trunc('hour', ts), origin) o JOIN flights f ON o.origin = f.origin AND date_trunc('hour', f.ts) = o.h
o0 = SELECT origin, date_trunc('hour', ts) AS time_1 FROM in0 [in0: flights]
o1 = SELECT key AS h, origin, count AS n FROM (SELECT time_1 AS key, origin, count(*) AS count FROM in0 GROUP BY time_1, origin) AS groups [in0: o0 by time_1 less 3600000 ms]
o2 = SELECT carrier, origin, date_trunc('hour', ts) AS time_1 FROM in0 [in0: flights]
o3 = SELECT in0.h, in0.n, in1.carrier FROM in0 JOIN in1 ON in0.origin = in1.origin AND in1.time_1 = in0.h [in0: o1 by h less 0 ms; in1: o2 by time_1 less 3600000 ms]
--
-- query
SELECT window.start, count(w.temp) AS n FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts GROUP BY window(f.ts, '1 day')
o0 = SELECT ts, origin FROM in0 [in0: flights]
o1 = SELECT ts, origin, temp FROM in0 [in0: weather]
o2 = SELECT window_start AS start, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, count(temp) AS count FROM (SELECT in0.ts, in1.temp FROM in0 LEFT JOIN in1 ON in0.origin = in1.origin AND (in1.ts BETWEEN in0.ts - INTERVAL '1' HOUR AND in0.ts)) AS joined GROUP BY window(ts, '86400000 milliseconds', '86400000 milliseconds', '0 milliseconds')) AS groups [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
--
-- query
SELECT f.carrier, w.temp FROM flights f, weather w WHERE f.origin = w.origin AND date_trunc('hour', f.ts) = date_trunc('hour', w.ts)
o0 = SELECT carrier, origin, date_trunc('hour', ts) AS time_1 FROM in0 [in0: flights]
o1 = SELECT origin, temp, date_trunc('hour', ts) AS time_1 FROM in0 [in0: weather]
o2 = SELECT in0.carrier, in1.temp FROM in0 JOIN in1 ON in0.origin = in1.origin AND in0.time_1 = in1.time_1 [in0: o0 by time_1 less 3600000 ms; in1: o1 by time_1 less 3600000 ms]
--
-- query
SELECT window.start, w.wind, avg(f.dep_delay) AS delay FROM flights f JOIN weather w ON f.origin = w.origin AND w.ts = date_trunc('hour', f.ts) GROUP BY window(f.ts, '6 hours'), w.wind
o0 = SELECT ts, origin, dep_delay, date_trunc('hour', ts) AS time_1 FROM in0 [in0: flights]
o1 = SELECT ts, origin, wind FROM in0 [in0: weather]
o2 = SELECT in0.ts, in0.dep_delay, in1.wind FROM in0 JOIN in1 ON in0.origin = in1.origin AND in1.ts = in0.time_1 AND (in0.ts BETWEEN in1.ts AND in1.ts + INTERVAL '3600' SECOND) [in0: o0 by time_1 less 3600000 ms; in1: o1 by ts less 0 ms]
o3 = SELECT window_start AS start, wind, avg AS delay FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, wind, avg(dep_delay) AS avg FROM in0 GROUP BY window(ts, '21600000 milliseconds', '21600000 milliseconds', '0 milliseconds'), wind) AS groups [in0: o2 by ts less 1 ms]
--
-- query
SELECT position('a' IN carrier) AS p FROM flights
o0 = SELECT position('a', carrier) AS p FROM in0 [in0: flights]
--
-- query
SELECT count(*) FILTER (WHERE dep_delay > 60) AS late, sum(distance) FILTER (WHERE carrier = 'AA') AS far FROM flights GROUP BY window(ts, '1 hour')
o0 = SELECT ts, carrier, dep_delay, distance FROM in0 [in0: flights]
o1 = SELECT count AS late, sum AS far FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, count(CASE WHEN dep_delay > 60 THEN 1 END) AS count, sum(CASE WHEN carrier = 'AA' THEN distance END) AS sum FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds')) AS groups [in0: o0 by ts less 0 ms]
--
-- query
SELECT window.start AS s, carrier AS c, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), c HAVING n > 3 AND c <> 'AA'
o0 = SELECT ts, carrier FROM in0 WHERE carrier <> 'AA' [in0: flights]
o1 = SELECT window_start AS s, carrier AS c, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, carrier, count(*) AS count FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), carrier) AS groups WHERE count > 3 [in0: o0 by ts less 0 ms]
--
-- query
SELECT carrier, window(ts, '1 hour') AS w, count(*) AS n FROM flights GROUP BY 1, 2
o0 = SELECT ts, carrier FROM in0 [in0: flights]
o1 = SELECT carrier, window_start AS w_start, window_end AS w_end, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, carrier, count(*) AS count FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), carrier) AS groups [in0: o0 by ts less 0 ms]
--
-- query
SELECT carrier AS c, max(n) AS m FROM (SELECT window, carrier, origin, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), carrier, origin) GROUP BY window, carrier
o0 = SELECT ts, carrier, origin FROM in0 [in0: flights]
o1 = SELECT window_start, window_end, carrier, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, carrier, origin, count(*) AS count FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), carrier, origin) AS groups [in0: o0 by ts less 0 ms]
o2 = SELECT carrier AS c, max AS m FROM (SELECT window_start, window_end, carrier, max(n) AS max FROM in0 GROUP BY window_start, window_end, carrier) AS groups [in0: o1 by window_end less 0 ms]
--
-- query
WITH t AS (SELECT ts, carrier FROM flights), u AS (WITH t AS (SELECT ts, origin AS carrier FROM weather) SELECT * FROM t) SELECT t.carrier FROM t JOIN u ON t.carrier = u.carrier AND t.ts = u.ts
o0 = SELECT ts, carrier FROM in0 [in0: flights]
o1 = SELECT ts, origin AS carrier FROM in0 [in0: weather]
o2 = SELECT in0.carrier FROM in0 JOIN in1 ON in0.carrier = in1.carrier AND in0.ts = in1.ts [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
--
-- query
WITH flights AS (SELECT ts, origin AS carrier FROM weather) SELECT carrier FROM flights
o0 = SELECT origin AS carrier FROM in0 [in0: weather]
--
-- query
WITH t AS (SELECT ts AS a, origin AS b FROM flights UNION ALL SELECT ts, origin FROM weather) SELECT b FROM t WHERE b > 'A'
o0 = SELECT origin AS b FROM in0 WHERE origin > 'A' [in0: flights]
o1 = SELECT origin AS b FROM in0 WHERE origin > 'A' [in0: weather]
--
-- query
SELECT carrier FROM flights WHERE upper(origin) IN (SELECT upper(origin) FROM weather w WHERE w.ts = flights.ts)
o0 = SELECT ts, carrier, origin FROM in0 [in0: flights]
o1 = SELECT ts, origin FROM in0 [in0: weather]
o2 = SELECT in0.carrier FROM in0 LEFT SEMI JOIN in1 ON in1.ts = in0.ts AND upper(in0.origin) = upper(in1.origin) AND (NOT upper(in0.origin) IS NULL) AND (NOT upper(in1.origin) IS NULL) [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
--
-- query
SELECT carrier FROM flights WHERE ts IN (SELECT ts FROM weather WHERE temp > 3) AND dep_delay > 3
o0 = SELECT ts, carrier FROM in0 WHERE dep_delay > 3 [in0: flights]
o1 = SELECT ts FROM in0 WHERE temp > 3 [in0: weather]
o2 = SELECT in0.carrier FROM in0 LEFT SEMI JOIN in1 ON in0.ts = in1.ts [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
--
-- query
SELECT f.carrier, w.temp, g.dep_delay FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts JOIN flights g ON g.carrier = f.carrier AND g.ts = f.ts
o0 = SELECT ts, carrier, origin FROM in0 [in0: flights]
o1 = SELECT ts, origin, temp FROM in0 [in0: weather]
o2 = SELECT ts, carrier, dep_delay FROM in0 [in0: flights]
o3 = SELECT in0.carrier, in0.temp, in1.dep_delay FROM (SELECT in0.ts, in0.carrier, in1.temp FROM in0 LEFT JOIN in1 ON in0.origin = in1.origin AND (in1.ts BETWEEN in0.ts - INTERVAL '1' HOUR AND in0.ts)) AS in0 JOIN in2 AS in1 ON in1.carrier = in0.carrier AND in1.ts = in0.ts [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms; in2: o2 by ts less 0 ms]
--
-- query
SELECT f.carrier FROM flights f, weather w, flights g WHERE f.origin = w.origin AND w.ts = f.ts AND g.origin = w.origin AND g.ts = w.ts AND g.distance > 9
o0 = SELECT ts, carrier, origin FROM in0 [in0: flights]
o1 = SELECT ts, origin FROM in0 [in0: weather]
o2 = SELECT in0.carrier, in1.ts AS w_ts, in1.origin AS w_origin FROM in0 JOIN in1 ON in0.origin = in1.origin AND in1.ts = in0.ts [in0: o0 by ts less 0 ms; in1: o1 by ts less 0 ms]
o3 = SELECT ts, origin FROM in0 WHERE distance > 9 [in0: flights]
o4 = SELECT in0.carrier FROM in0 JOIN in1 ON in1.origin = in0.w_origin AND in1.ts = in0.w_ts [in0: o2 by w_ts less 1 ms; in1: o3 by ts less 0 ms]
--
-- query
SELECT DISTINCT window(ts, '1 hour') AS w, carrier FROM flights WHERE dep_delay > 0
o0 = SELECT ts, carrier FROM in0 WHERE dep_delay > 0 [in0: flights]
o1 = SELECT window_start AS w_start, window_end AS w_end, carrier FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, carrier FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), carrier) AS groups [in0: o0 by ts less 0 ms]
--
-- query
SELECT a.n, b.m FROM (SELECT window, carrier, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), carrier) a JOIN (SELECT window, carrier, max(dep_delay) AS m FROM flights GROUP BY window(ts, '1 hour'), carrier) b ON a.window.end = b.window.end AND a.carrier = b.carrier
o0 = SELECT ts, carrier FROM in0 [in0: flights]
o1 = SELECT window_end, carrier, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, carrier, count(*) AS count FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), carrier) AS groups [in0: o0 by ts less 0 ms]
o2 = SELECT ts, carrier, dep_delay FROM in0 [in0: flights]
o3 = SELECT window_end, carrier, max AS m FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, carrier, max(dep_delay) AS max FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), carrier) AS groups [in0: o2 by ts less 0 ms]
o4 = SELECT in0.n, in1.m FROM in0 JOIN in1 ON in0.window_end = in1.window_end AND in0.carrier = in1.carrier [in0: o1 by window_end less 0 ms; in1: o3 by window_end less 0 ms]
--
-- query
SELECT ts, carrier FROM flights UNION ALL SELECT ts, carrier FROM flights
o0 = SELECT ts, carrier FROM in0 [in0: flights]
o1 = SELECT ts, carrier FROM in0 [in0: flights]
--
-- query
SELECT origin, h, n FROM (SELECT window.start AS h, origin, count(*) AS n, sum(distance) AS d FROM flights GROUP BY window(ts, '1 hour'), origin) WHERE origin = 'JFK' AND n > 3 AND h > TIMESTAMP '2013-01-01 00:00:00'
o0 = SELECT ts, origin FROM in0 WHERE origin = 'JFK' [in0: flights]
o1 = SELECT origin, window_start AS h, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, origin, count(*) AS count FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), origin) AS groups WHERE count > 3 AND window_start > CAST('2013-01-01 00:00:00' AS TIMESTAMP) [in0: o0 by ts less 0 ms]
--
-- query
SELECT window.start AS s, count(*) AS n FROM flights GROUP BY window(ts, '1 hour') HAVING n > 3 AND s > TIMESTAMP '2013-02-08 00:00:00'
o0 = SELECT ts FROM in0 [in0: flights]
o1 = SELECT window_start AS s, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, count(*) AS count FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds')) AS groups WHERE count > 3 AND window_start > CAST('2013-02-08 00:00:00' AS TIMESTAMP) [in0: o0 by ts less 0 ms]
--
-- query
SELECT a.n, b.n AS m FROM (SELECT window, origin, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), origin) a JOIN (SELECT window, origin, count(*) AS n FROM weather GROUP BY window(ts, '1 hour'), origin) b ON a.window = b.window AND a.origin = b.origin
o0 = SELECT ts, origin FROM in0 [in0: flights]
o1 = SELECT window_start, window_end, origin, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, origin, count(*) AS count FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), origin) AS groups [in0: o0 by ts less 0 ms]
o2 = SELECT ts, origin FROM in0 [in0: weather]
o3 = SELECT window_start, window_end, origin, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, origin, count(*) AS count FROM in0 GROUP BY window(ts, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds'), origin) AS groups [in0: o2 by ts less 0 ms]
o4 = SELECT in0.n, in1.n AS m FROM in0 JOIN in1 ON in0.window_start = in1.window_start AND in0.window_end = in1.window_end AND in0.origin = in1.origin [in0: o1 by window_start less 3600000 ms; in1: o3 by window_start less 3600000 ms]
--
-- query
SELECT date_trunc('hour', f.ts) AS h, f.origin, max(w.wind) AS wind FROM flights f JOIN weather w ON f.origin = w.origin AND date_trunc('hour', f.ts) = w.ts GROUP BY date_trunc('hour', f.ts), f.origin
o0 = SELECT ts, origin, date_trunc('hour', ts) AS time_1 FROM in0 [in0: flights]
o1 = SELECT ts, origin, wind FROM in0 [in0: weather]
o2 = SELECT in0.origin, in1.wind, date_trunc('hour', in0.ts) AS time_1 FROM in0 JOIN in1 ON in0.origin = in1.origin AND in0.time_1 = in1.ts AND (in0.ts BETWEEN in1.ts AND in1.ts + INTERVAL '3600' SECOND) [in0: o0 by time_1 less 3600000 ms; in1: o1 by ts less 0 ms]
o3 = SELECT key AS h, origin, max AS wind FROM (SELECT time_1 AS key, origin, max(wind) AS max FROM in0 GROUP BY time_1, origin) AS groups [in0: o2 by time_1 less 3600001 ms]
--
-- query
SELECT f.ts, f.carrier, d.n FROM flights f JOIN (SELECT window.start AS s, window.end AS e, origin, count(*) AS n FROM flights GROUP BY window(ts, '1 day'), origin) d ON f.origin = d.origin AND f.ts >= d.s AND f.ts < d.e
o0 = SELECT ts, carrier, origin FROM in0 [in0: flights]
o1 = SELECT ts, origin FROM in0 [in0: flights]
o2 = SELECT window_start AS s, window_end AS e, origin, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, origin, count(*) AS count FROM in0 GROUP BY window(ts, '86400000 milliseconds', '86400000 milliseconds', '0 milliseconds'), origin) AS groups [in0: o1 by ts less 0 ms]
o3 = SELECT in0.ts, in0.carrier, in1.n FROM in0 JOIN in1 ON in0.origin = in1.origin AND in0.ts >= in1.s AND in0.ts < in1.e AND in0.ts < (in1.s + INTERVAL '86400' SECOND) [in0: o0 by ts less 0 ms; in1: o2 by s less 86400000 ms]
--
