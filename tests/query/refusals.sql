-- Queries that are refused. Each block: "-- expect: code line:column", then the SQL up to a line of "--".
-- Streams: flights(ts timestamp, carrier string, dep_delay double, origin string, distance int, limit int), idle (no sources).
-- expect: not-a-select 1:1
;
--
-- expect: not-a-select 1:1
SELEC carrier FROM flights
--
-- expect: unsupported-no-from 1:1
SELECT
--
-- expect: bad-sql 1:1
SELECT FROM flights
--
-- expect: bad-sql 1:15
SELECT carrier,, origin FROM flights
--
-- expect: bad-sql 1:15
SELECT carrier, FROM flights
--
-- expect: bad-sql 1:16
SELECT carrier FROM
--
-- expect: bad-sql 1:23
SELECT carrier origin distance FROM flights
--
-- expect: bad-sql 1:29
SELECT carrier FROM flights WHERE
--
-- expect: bad-sql 1:45
SELECT carrier FROM flights WHERE dep_delay >
--
-- expect: bad-sql 1:22
SELECT upper(carrier FROM flights
--
-- expect: bad-sql 1:15
SELECT carrier) FROM flights
--
-- expect: bad-sql 1:8
SELECT 'abc FROM flights
--
-- expect: bad-sql 1:8
SELECT `carrier FROM flights
--
-- expect: bad-sql 1:8
SELECT /* carrier FROM flights
--
-- expect: forbidden-comment 1:29
SELECT carrier FROM flights -- \
, origin
--
-- expect: several-statements 1:30
SELECT carrier FROM flights; SELECT origin FROM flights
--
-- expect: several-statements 1:30
SELECT carrier FROM flights; DROP TABLE flights
--
-- expect: unknown-stream 1:21
SELECT carrier FROM flighs
--
-- expect: unknown-stream 2:6
SELECT carrier
FROM nowhere
WHERE dep_delay > 1
--
-- expect: unknown-column 1:8
SELECT delay FROM flights
--
-- expect: unknown-column 2:8
SELECT carrier,
       dep_dely * 2 AS twice
FROM flights
--
-- expect: unknown-column 1:35
SELECT carrier FROM flights WHERE delay > 60
--
-- expect: unknown-alias 1:8
SELECT w.carrier FROM flights f
--
-- expect: unknown-alias 1:8
SELECT flights.carrier FROM flights f
--
-- expect: unknown-alias 1:8
SELECT w.* FROM flights f
--
-- expect: unsupported-expression 1:8
SELECT carrier.x.y.z FROM flights
--
-- expect: duplicate-column 1:17
SELECT carrier, origin AS carrier FROM flights
--
-- expect: duplicate-column 1:11
SELECT *, carrier FROM flights
--
-- expect: bad-name 1:8
SELECT carrier AS `a b` FROM flights
--
-- expect: no-sources idle
SELECT ts FROM idle
--
-- expect: unsupported-no-from 1:1
SELECT 1
--
-- expect: duplicate-alias 1:30
SELECT carrier FROM flights, flights
--
-- expect: ambiguous-column 1:8
SELECT carrier FROM flights a JOIN flights b ON a.ts = b.ts
--
-- expect: unsupported-join 1:39
SELECT carrier FROM flights LEFT JOIN weather USING (origin)
--
-- expect: aggregate-without-window 1:48
SELECT carrier, count(*) FROM flights GROUP BY carrier
--
-- expect: aggregate-without-window 1:8
SELECT count(*) FROM flights
--
-- expect: aggregate-without-window 1:8
SELECT sum(dep_delay) FROM flights
--
-- expect: aggregate-without-window 1:8
SELECT avg(dep_delay) AS a FROM flights
--
-- expect: aggregate-without-window 1:8
SELECT carrier FROM flights HAVING count(*) > 1
--
-- expect: unsupported-group-by 1:29
SELECT carrier FROM flights GROUP BY ALL
--
-- expect: aggregate-without-window 1:17
SELECT DISTINCT carrier FROM flights
--
-- expect: unsupported-union 1:29
SELECT carrier FROM flights EXCEPT SELECT origin FROM flights
--
-- expect: unsupported-order-by 1:29
SELECT carrier FROM flights ORDER BY carrier
--
-- expect: unsupported-order-by 1:29
SELECT carrier FROM flights SORT BY carrier
--
-- expect: unsupported-limit 1:29
SELECT carrier FROM flights LIMIT 10
--
-- expect: unsupported-limit 1:29
SELECT carrier FROM flights LIMIT 10 OFFSET 2
--
-- expect: unsupported-subquery 1:8
SELECT (SELECT max(ts) FROM flights) FROM flights
--
-- expect: join-without-bound 1:53
SELECT carrier FROM flights WHERE origin IN (SELECT origin FROM flights)
--
-- expect: join-without-equality 1:50
SELECT carrier FROM flights WHERE EXISTS (SELECT 1 FROM flights)
--
-- expect: unsupported-window 1:8
SELECT row_number() OVER (PARTITION BY carrier ORDER BY ts) FROM flights
--
-- expect: unsupported-window 1:8
SELECT sum(dep_delay) OVER (ORDER BY ts) FROM flights
--
-- expect: unsupported-window 1:8
SELECT window(ts, '1 hour') FROM flights
--
-- expect: unsupported-generator 1:8
SELECT explode(split(carrier, ',')) FROM flights
--
-- expect: unsupported-generator 1:29
SELECT carrier FROM flights LATERAL VIEW explode(split(carrier, ',')) t AS x
--
-- expect: unsupported-lambda 1:8
SELECT transform(split(carrier, ','), x -> upper(x)) FROM flights
--
-- expect: unsupported-clause 1:21
SELECT carrier FROM flights TABLESAMPLE (10 PERCENT)
--
-- expect: unsupported-hint 1:8
SELECT /*+ BROADCAST(flights) */ carrier FROM flights
--
-- expect: not-repeatable 1:8
SELECT rand() AS r FROM flights
--
-- expect: not-repeatable 1:8
SELECT uuid() FROM flights
--
-- expect: not-repeatable 1:8
SELECT now() FROM flights
--
-- expect: not-repeatable 1:8
SELECT current_timestamp FROM flights
--
-- expect: not-repeatable 1:40
SELECT carrier FROM flights WHERE ts > current_timestamp() - INTERVAL 1 DAY
--
-- expect: not-repeatable 1:8
SELECT current_date FROM flights
--
-- expect: not-repeatable 1:8
SELECT unix_timestamp() FROM flights
--
-- expect: forbidden-function 1:8
SELECT current_user() FROM flights
--
-- expect: forbidden-function 1:8
SELECT input_file_name() FROM flights
--
-- expect: forbidden-function 1:8
SELECT raise_error('x') FROM flights
--
-- expect: unknown-function 1:8
SELECT uper(carrier) FROM flights
--
-- expect: unknown-function 1:8
SELECT my_function(carrier) FROM flights
--
-- expect: unbounded-function 1:8
SELECT repeat(carrier, 100000000) FROM flights
--
-- expect: unbounded-function 1:8
SELECT repeat(carrier, distance) FROM flights
--
-- expect: unbounded-function 1:8
SELECT lpad(carrier, 1000000000, 'x') FROM flights
--
-- expect: unbounded-function 1:8
SELECT space(100000) FROM flights
--
-- expect: unbounded-function 1:8
SELECT replace(carrier, 'a', carrier) FROM flights
--
-- expect: unbounded-function 1:8
SELECT sequence(1, 1000000000) FROM flights
--
-- expect: unbounded-function 1:8
SELECT array_repeat(carrier, 1000000) FROM flights
--
-- expect: unbounded-function 1:8
SELECT format_string('%1000000000s', carrier) FROM flights
--
-- expect: unsupported-type 1:24
SELECT CAST(carrier AS ARRAY<INT>) FROM flights
--
-- expect: unsupported-type 1:19
SELECT CAST(ts AS TIMESTAMP_NTZ) FROM flights
--
-- expect: adjacent-strings 1:12
SELECT 'it''s' AS x FROM flights
--
-- expect: adjacent-strings 1:12
SELECT 'a' 'b' AS x FROM flights
--
-- expect: forbidden-variable 1:8
SELECT :carrier FROM flights
--
-- expect: forbidden-variable 1:8
SELECT ? FROM flights
--
-- expect: forbidden-variable 1:9
SELECT '${env:HOME}' AS x FROM flights
--
-- expect: unsupported-clause 1:21
SELECT carrier FROM flights PIVOT (count(*) FOR origin IN ('JFK'))
--
-- expect: too-deep 1:40
SELECT ((((((((((((((((((((((((((((((((((carrier)))))))))))))))))))))))))))))))))) FROM flights
--
-- expect: unsupported-expression 1:51
SELECT carrier IN (1, 2) AND NOT origin LIKE ANY ('a', 'b') AS x FROM flights
--
-- expect: not-a-select 1:1
VALUES (1, 2)
--
-- expect: not-a-select 1:1
TABLE flights
--
-- expect: not-a-select 1:1
FROM flights SELECT carrier
--
-- expect: not-a-select 1:1
EXPLAIN SELECT carrier FROM flights
--
-- expect: not-a-select 1:1
CREATE VIEW v AS SELECT 1
--
-- expect: forbidden-operator 1:29
SELECT carrier FROM flights |> WHERE dep_delay > 1
--
-- expect: forbidden-character 1:16
SELECT carrier ＡＮＤ origin FROM flights
--
-- expect: unknown-column 1:8
SELECT count FROM flights f
--
-- expect: empty-query 1:1
--
-- expect: ambiguous-expression 1:1
SELECT origin NOT IN ('JFK') = (carrier = 'UA') AS x FROM flights
--
-- expect: not-repeatable 1:8
SELECT localtime() FROM flights
--
