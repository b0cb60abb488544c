-- Queries that are refused, and what the user is told. Each block: "-- expect: code line:column", "-- says: message", "-- hint: hint"
-- if there is one, then the SQL up to a line of "--". Streams: flights(ts timestamp, carrier string, dep_delay double, origin
-- string, distance int, limit int, scheduled timestamp), weather(ts timestamp, origin string, temp double, wind double), union(ts
-- timestamp), idle(ts timestamp) without sources.
-- expect: not-a-select 1:1
-- says: only SELECT is allowed: ;
-- hint: a query begins with SELECT
;
--
-- expect: not-a-select 1:1
-- says: only SELECT is allowed: SELEC carrier FROM flights
-- hint: did you mean SELECT?
SELEC carrier FROM flights
--
-- expect: unsupported-no-from 1:1
-- says: there is no FROM: SELECT
-- hint: name the stream to read: FROM stream
SELECT
--
-- expect: bad-sql 1:1
-- says: nothing is selected: SELECT FROM flights
-- hint: write SELECT expressions FROM stream
SELECT FROM flights
--
-- expect: bad-sql 1:15
-- says: an expression is missing after the comma: ,
-- hint: remove the comma
SELECT carrier,, origin FROM flights
--
-- expect: bad-sql 1:15
-- says: an expression is missing after the comma: ,
-- hint: remove the comma
SELECT carrier, FROM flights
--
-- expect: bad-sql 1:15
-- says: SELECT without a bracket before it: select
-- hint: put a sub-query in brackets, FROM (SELECT ...) alias, or the name of a stream in back-quotes
SELECT * FROM select
--
-- expect: bad-sql 1:15
-- says: union is a word of SQL: UNION
-- hint: put the stream's name in back-quotes: `union`
SELECT * FROM UNION WHERE x > 1
--
-- expect: bad-sql 1:38
-- says: union is a word of SQL: union
-- hint: put the stream's name in back-quotes: `union`
SELECT f.carrier FROM flights f JOIN union o ON o.ts = f.ts
--
-- expect: bad-sql 1:16
-- says: the name of a stream is missing after: FROM
-- hint: write SELECT expressions FROM stream WHERE condition
SELECT carrier FROM
--
-- expect: bad-sql 1:8
-- says: a number has at most 40 characters: 99999999999999999999999999999999999999999
SELECT 99999999999999999999999999999999999999999 AS nines FROM flights
--
-- expect: bad-sql 1:23
-- says: not understood from here on: distance
-- hint: write SELECT expressions FROM stream WHERE condition
SELECT carrier origin distance FROM flights
--
-- expect: bad-sql 1:29
-- says: something is missing after: WHERE
-- hint: write SELECT expressions FROM stream WHERE condition
SELECT carrier FROM flights WHERE
--
-- expect: bad-sql 1:18
-- says: something is missing before: FROM
-- hint: write SELECT expressions FROM stream WHERE condition
SELECT carrier + FROM flights
--
-- expect: bad-sql 1:35
-- says: something is missing before: )
-- hint: write SELECT expressions FROM stream WHERE condition
SELECT carrier, upper(dep_delay + ) FROM flights
--
-- expect: bad-sql 1:47
-- says: something is missing before: AND
-- hint: write SELECT expressions FROM stream WHERE condition
SELECT carrier FROM flights WHERE dep_delay > AND origin = 'JFK';
--
-- expect: bad-sql 1:45
-- says: something is missing after: >
-- hint: write SELECT expressions FROM stream WHERE condition
SELECT carrier FROM flights WHERE dep_delay > ;
--
-- expect: bad-sql 1:45
-- says: something is missing after: >
-- hint: write SELECT expressions FROM stream WHERE condition
SELECT carrier FROM flights WHERE dep_delay >
--
-- expect: bad-sql 1:22
-- says: a closing bracket is missing before: FROM
-- hint: write SELECT expressions FROM stream WHERE condition
SELECT upper(carrier FROM flights
--
-- expect: bad-sql 1:15
-- says: not understood from here on: )
-- hint: write SELECT expressions FROM stream WHERE condition
SELECT carrier) FROM flights
--
-- expect: bad-sql 1:8
-- says: the string has no end: 'abc FROM flights
-- hint: close it with '
SELECT 'abc FROM flights
--
-- expect: bad-sql 1:8
-- says: the quoted name has no end, or is empty: `carrier FROM flights
-- hint: close it with `
SELECT `carrier FROM flights
--
-- expect: bad-sql 1:8
-- says: the comment has no end: /* carrier FROM flights
-- hint: close it with */
SELECT /* carrier FROM flights
--
-- expect: forbidden-comment 1:29
-- says: a comment may not end in a back-slash (Spark continues it on the next line): -- \
-- hint: remove the back-slash
SELECT carrier FROM flights -- \
, origin
--
-- expect: several-statements 1:30
-- says: one statement at a time: SELECT origin FROM flights
-- hint: submit one query at a time
SELECT carrier FROM flights; SELECT origin FROM flights
--
-- expect: several-statements 1:30
-- says: one statement at a time: DROP TABLE flights
-- hint: submit one query at a time
SELECT carrier FROM flights; DROP TABLE flights
--
-- expect: unknown-stream 1:21
-- says: there is no stream 'flighs': flighs
-- hint: did you mean flights?
SELECT carrier FROM flighs
--
-- expect: unknown-stream 2:6
-- says: there is no stream 'nowhere': nowhere
-- hint: there are flights, idle, union, weather
SELECT carrier
FROM nowhere
WHERE dep_delay > 1
--
-- expect: unknown-column 1:8
-- says: flights has no column 'delay': delay
-- hint: did you mean dep_delay?
SELECT delay FROM flights
--
-- expect: unknown-column 2:8
-- says: flights has no column 'dep_dely': dep_dely
-- hint: did you mean dep_delay?
SELECT carrier,
       dep_dely * 2 AS twice
FROM flights
--
-- expect: unknown-column 1:35
-- says: flights has no column 'delay': delay
-- hint: did you mean dep_delay?
SELECT carrier FROM flights WHERE delay > 60
--
-- expect: unknown-alias 1:8
-- says: no stream of this query is called 'w': w.carrier
-- hint: write f.carrier
SELECT w.carrier FROM flights f
--
-- expect: unknown-alias 1:8
-- says: no stream of this query is called 'flights': flights.carrier
-- hint: write f.carrier
SELECT flights.carrier FROM flights f
--
-- expect: unknown-alias 1:8
-- says: no stream of this query is called 'w': w.*
-- hint: write f.*
SELECT w.* FROM flights f
--
-- expect: unsupported-expression 1:8
-- says: not supported here: carrier.x.y.z
-- hint: name a column
SELECT carrier.x.y.z FROM flights
--
-- expect: duplicate-column 1:17
-- says: two outputs are named 'carrier': origin AS carrier
-- hint: name one of them with AS
SELECT carrier, origin AS carrier FROM flights
--
-- expect: duplicate-column 1:11
-- says: two outputs are named 'carrier': carrier
-- hint: name one of them with AS
SELECT *, carrier FROM flights
--
-- expect: bad-name 1:8
-- says: 'a b' is not a column's name: carrier AS `a b`
-- hint: letters, digits and _, not beginning with a digit; at most 128
SELECT carrier AS `a b` FROM flights
--
-- expect: no-sources 1:16
-- says: the stream 'idle' has no sources: idle
-- hint: sbon stream attach idle ...
SELECT ts FROM idle
--
-- expect: unsupported-no-from 1:1
-- says: there is no FROM: SELECT 1
-- hint: name the stream to read: FROM stream
SELECT 1
--
-- expect: duplicate-alias 1:30
-- says: two relations are named 'flights': flights
-- hint: give one of them another name with AS
SELECT carrier FROM flights, flights
--
-- expect: ambiguous-column 1:8
-- says: 'carrier' is in more than one relation: carrier
-- hint: write a.carrier or b.carrier
SELECT carrier FROM flights a JOIN flights b ON a.ts = b.ts
--
-- expect: ambiguous-column 1:8
-- says: 'ts' is in more than one relation: *
-- hint: name the columns, such as a.ts, b.ts AS b_ts; and the join needs an equality and a bound in time: add one: a.carrier = b.carrier; bound it: b.ts BETWEEN a.ts - INTERVAL 1 HOUR AND a.ts, or by a join window (--join-window, join_window_ms)
SELECT * FROM flights a, flights b
--
-- expect: ambiguous-column 2:1
-- says: 'ts' is in more than one relation: *
-- hint: name the columns, such as a.ts, b.ts AS b_ts
SELECT
* FROM flights a JOIN weather b ON a.ts = b.ts
--
-- expect: duplicate-column 1:13
-- says: two outputs are named 'ts': b.ts
-- hint: name one of them with AS
SELECT a.*, b.* FROM flights a JOIN weather b ON a.ts = b.ts
--
-- expect: unsupported-join 1:39
-- says: USING is not supported: weather
-- hint: write ON flights.origin = weather.origin
SELECT carrier FROM flights LEFT JOIN weather USING (origin)
--
-- expect: aggregate-without-window 1:48
-- says: a stream has no end, so its groups need one: carrier
-- hint: GROUP BY window(ts, '1 hour'), carrier
SELECT carrier, count(*) FROM flights GROUP BY carrier
--
-- expect: aggregate-without-window 1:8
-- says: a stream has no end, so an aggregate needs a window: count(*)
-- hint: GROUP BY window(ts, '1 hour')
SELECT count(*) FROM flights
--
-- expect: aggregate-without-window 1:8
-- says: a stream has no end, so an aggregate needs a window: sum(dep_delay)
-- hint: GROUP BY window(ts, '1 hour')
SELECT sum(dep_delay) FROM flights
--
-- expect: aggregate-without-window 1:8
-- says: a stream has no end, so an aggregate needs a window: avg(dep_delay) AS a
-- hint: GROUP BY window(ts, '1 hour')
SELECT avg(dep_delay) AS a FROM flights
--
-- expect: aggregate-without-window 1:8
-- says: a stream has no end, so an aggregate needs a window: carrier
-- hint: GROUP BY window(ts, '1 hour')
SELECT carrier FROM flights HAVING count(*) > 1
--
-- expect: unsupported-group-by 1:29
-- says: ALL is not supported: GROUP BY ALL
-- hint: list the keys
SELECT carrier FROM flights GROUP BY ALL
--
-- expect: aggregate-without-window 1:17
-- says: a stream has no end, so its groups need one: carrier
-- hint: SELECT DISTINCT window(ts, '1 hour'), carrier
SELECT DISTINCT carrier FROM flights
--
-- expect: unsupported-union 1:29
-- says: EXCEPT compares all rows, and streams have no end: EXCEPT
-- hint: LEFT JOIN ... and WHERE a column of the right side IS NULL
SELECT carrier FROM flights EXCEPT SELECT origin FROM flights
--
-- expect: unsupported-order-by 1:29
-- says: ORDER BY is not supported: ORDER BY carrier
-- hint: a stream has no end, so it cannot be sorted; sort where the rows arrive
SELECT carrier FROM flights ORDER BY carrier
--
-- expect: unsupported-order-by 1:29
-- says: SORT BY is not supported: SORT BY carrier
-- hint: a stream has no end, so it cannot be sorted; sort where the rows arrive
SELECT carrier FROM flights SORT BY carrier
--
-- expect: unsupported-limit 1:29
-- says: LIMIT is not supported: LIMIT 10
-- hint: stop the query when there are rows enough: sbon query stop
SELECT carrier FROM flights LIMIT 10
--
-- expect: unsupported-limit 1:29
-- says: LIMIT is not supported: LIMIT 10
-- hint: stop the query when there are rows enough: sbon query stop
SELECT carrier FROM flights LIMIT 10 OFFSET 2
--
-- expect: unsupported-subquery 1:8
-- says: a sub-query has no place here: (SELECT max(ts) FROM flights)
-- hint: FROM (SELECT ...), EXISTS (SELECT ...) or x IN (SELECT ...) among the conditions of WHERE
SELECT (SELECT max(ts) FROM flights) FROM flights
--
-- expect: join-without-bound 1:45
-- says: rows would be kept for ever: the join has no bound in time: (SELECT origin FROM flights)
-- hint: give flights another name in the sub-query, and bound its event time by the outer one
SELECT carrier FROM flights WHERE origin IN (SELECT origin FROM flights)
--
-- expect: join-without-equality 1:43
-- says: a join needs an equality between a column of each side: SELECT 1 FROM flights
-- hint: give flights another name in the sub-query, and compare a column of both
SELECT carrier FROM flights WHERE EXISTS (SELECT 1 FROM flights)
--
-- expect: unsupported-window 1:8
-- says: OVER needs all rows in order: row_number() OVER (PARTITION BY carrier ORDER BY ts)
-- hint: aggregate by GROUP BY window(event time, '1 hour')
SELECT row_number() OVER (PARTITION BY carrier ORDER BY ts) FROM flights
--
-- expect: unsupported-window 1:8
-- says: OVER needs all rows in order: sum(dep_delay) OVER (ORDER BY ts)
-- hint: aggregate by GROUP BY window(event time, '1 hour')
SELECT sum(dep_delay) OVER (ORDER BY ts) FROM flights
--
-- expect: unsupported-window 1:8
-- says: window belongs into GROUP BY: window(ts, '1 hour')
-- hint: GROUP BY window(event time, '1 hour')
SELECT window(ts, '1 hour') FROM flights
--
-- expect: unsupported-generator 1:8
-- says: explode makes several rows of one: explode(split(carrier, ','))
-- hint: one row in gives at most one row out
SELECT explode(split(carrier, ',')) FROM flights
--
-- expect: unsupported-generator 1:29
-- says: LATERAL is not supported: LATERAL VIEW explode(split(carrier, ',')) t AS x
-- hint: one row in gives at most one row out
SELECT carrier FROM flights LATERAL VIEW explode(split(carrier, ',')) t AS x
--
-- expect: unsupported-lambda 1:8
-- says: transform takes a lambda: transform(split(carrier, ','), x -> upper(x))
-- hint: lambdas are not supported
SELECT transform(split(carrier, ','), x -> upper(x)) FROM flights
--
-- expect: unsupported-clause 1:21
-- says: TABLESAMPLE is not supported: flights TABLESAMPLE (10 PERCENT)
-- hint: samples are not repeatable; filter by hash(column) % n = 0
SELECT carrier FROM flights TABLESAMPLE (10 PERCENT)
--
-- expect: unsupported-hint 1:8
-- says: optimizer hints are not supported: /*+ BROADCAST(flights) */ carrier FROM f
-- hint: placement is chosen by the query's strategy
SELECT /*+ BROADCAST(flights) */ carrier FROM flights
--
-- expect: not-repeatable 1:8
-- says: rand gives another result each time: rand()
-- hint: a batch that is run again must give the same rows; use the event time
SELECT rand() AS r FROM flights
--
-- expect: not-repeatable 1:8
-- says: uuid gives another result each time: uuid()
-- hint: a batch that is run again must give the same rows; use the event time
SELECT uuid() FROM flights
--
-- expect: not-repeatable 1:8
-- says: now gives another result each time: now()
-- hint: a batch that is run again must give the same rows; use the event time
SELECT now() FROM flights
--
-- expect: not-repeatable 1:8
-- says: the clock gives another result each time: CURRENT_TIMESTAMP()
-- hint: use the event time
SELECT current_timestamp FROM flights
--
-- expect: not-repeatable 1:40
-- says: current_timestamp gives another result each time: current_timestamp()
-- hint: a batch that is run again must give the same rows; use the event time
SELECT carrier FROM flights WHERE ts > current_timestamp() - INTERVAL 1 DAY
--
-- expect: not-repeatable 1:8
-- says: the clock gives another result each time: CURRENT_DATE
-- hint: use the event time
SELECT current_date FROM flights
--
-- expect: not-repeatable 1:8
-- says: unix_timestamp without arguments reads the clock: unix_timestamp()
-- hint: pass it a column
SELECT unix_timestamp() FROM flights
--
-- expect: forbidden-function 1:8
-- says: current_user reaches beyond the row: current_user()
-- hint: only functions of a row's own values are allowed
SELECT current_user() FROM flights
--
-- expect: forbidden-function 1:8
-- says: input_file_name reaches beyond the row: input_file_name()
-- hint: only functions of a row's own values are allowed
SELECT input_file_name() FROM flights
--
-- expect: forbidden-function 1:8
-- says: raise_error reaches beyond the row: raise_error('x')
-- hint: only functions of a row's own values are allowed
SELECT raise_error('x') FROM flights
--
-- expect: unknown-function 1:8
-- says: uper is not among the allowed functions: uper(carrier)
-- hint: did you mean upper?
SELECT uper(carrier) FROM flights
--
-- expect: unknown-function 1:8
-- says: my_function is not among the allowed functions: my_function(carrier)
-- hint: there are Spark's functions of numbers, strings, dates and arrays
SELECT my_function(carrier) FROM flights
--
-- expect: unbounded-function 1:8
-- says: argument 2 of repeat may make values of any size: repeat(carrier, 100000000)
-- hint: write a literal number of at most 100
SELECT repeat(carrier, 100000000) FROM flights
--
-- expect: unbounded-function 1:8
-- says: argument 2 of repeat may make values of any size: repeat(carrier, distance)
-- hint: write a literal number of at most 100
SELECT repeat(carrier, distance) FROM flights
--
-- expect: unbounded-function 1:8
-- says: this may become more than 1000 times as long as a value: repeat(repeat(carrier, 100), 100)
-- hint: nest fewer functions that make values longer, or give them smaller numbers
SELECT repeat(repeat(carrier, 100), 100) FROM flights
--
-- expect: unbounded-function 1:8
-- says: argument 2 of lpad may make values of any size: lpad(carrier, 1000000000, 'x')
-- hint: write a literal number of at most 1000
SELECT lpad(carrier, 1000000000, 'x') FROM flights
--
-- expect: unbounded-function 1:8
-- says: argument 1 of space may make values of any size: space(100000)
-- hint: write a literal number of at most 1000
SELECT space(100000) FROM flights
--
-- expect: unbounded-function 1:8
-- says: argument 3 of replace may make values of any size: replace(carrier, 'a', carrier)
-- hint: write a literal of at most 100 characters
SELECT replace(carrier, 'a', carrier) FROM flights
--
-- expect: unbounded-function 1:8
-- says: sequence may return values of any size: sequence(1, 1000000000)
-- hint: use lpad, rpad or repeat with a literal length
SELECT sequence(1, 1000000000) FROM flights
--
-- expect: unbounded-function 1:8
-- says: array_repeat may return values of any size: array_repeat(carrier, 1000000)
-- hint: use lpad, rpad or repeat with a literal length
SELECT array_repeat(carrier, 1000000) FROM flights
--
-- expect: unbounded-function 1:8
-- says: format_string may return values of any size: format_string('%1000000000s', carrier)
-- hint: use lpad, rpad or repeat with a literal length
SELECT format_string('%1000000000s', carrier) FROM flights
--
-- expect: unsupported-type 1:24
-- says: this type is not supported: ARRAY<INT>
-- hint: boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp
SELECT CAST(carrier AS ARRAY<INT>) FROM flights
--
-- expect: unsupported-type 1:19
-- says: this type is not supported: TIMESTAMP_NTZ
-- hint: boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp
SELECT CAST(ts AS TIMESTAMP_NTZ) FROM flights
--
-- expect: adjacent-strings 1:12
-- says: two strings side by side: 'it' 's'
-- hint: write \' for a quote inside a string, and || to join strings
SELECT 'it''s' AS x FROM flights
--
-- expect: adjacent-strings 1:12
-- says: two strings side by side: 'a' 'b'
-- hint: write \' for a quote inside a string, and || to join strings
SELECT 'a' 'b' AS x FROM flights
--
-- expect: forbidden-variable 1:8
-- says: parameters and variables are not supported: :carrier
-- hint: write the value
SELECT :carrier FROM flights
--
-- expect: forbidden-variable 1:8
-- says: parameters and variables are not supported: ?
-- hint: write the value
SELECT ? FROM flights
--
-- expect: forbidden-variable 1:9
-- says: variables are not replaced: ${env:HOME}' AS x FROM flights
-- hint: write concat('$', '{') where a string must hold it
SELECT '${env:HOME}' AS x FROM flights
--
-- expect: unsupported-clause 1:21
-- says: PIVOT is not supported: flights PIVOT(count(*) FOR origin IN ('JFK'))
-- hint: write the columns: sum(CASE WHEN key = 'a' THEN value END) AS a
SELECT carrier FROM flights PIVOT (count(*) FOR origin IN ('JFK'))
--
-- expect: too-deep 1:40
-- says: more than 32 brackets inside one another
-- hint: simplify the expression; query.max_brackets sets the limit
SELECT ((((((((((((((((((((((((((((((((((carrier)))))))))))))))))))))))))))))))))) FROM flights
--
-- expect: unsupported-expression 1:46
-- says: ALL and ANY are not supported: ANY ('a', 'b')
-- hint: join with the sub-query, or list the values: IN (1, 2)
SELECT carrier IN (1, 2) AND NOT origin LIKE ANY ('a', 'b') AS x FROM flights
--
-- expect: not-a-select 1:1
-- says: only SELECT is allowed: VALUES (1, 2)
-- hint: a query begins with SELECT
VALUES (1, 2)
--
-- expect: not-a-select 1:1
-- says: only SELECT is allowed: TABLE flights
-- hint: a query begins with SELECT
TABLE flights
--
-- expect: not-a-select 1:1
-- says: only SELECT is allowed: FROM flights SELECT carrier
-- hint: a query begins with SELECT
FROM flights SELECT carrier
--
-- expect: not-a-select 1:1
-- says: only SELECT is allowed: EXPLAIN SELECT carrier FROM flights
-- hint: it is a statement of the shell sbon sql, not of a query; see also sbon stream and sbon query
EXPLAIN SELECT carrier FROM flights
--
-- expect: not-a-select 1:1
-- says: only SELECT is allowed: CREATE VIEW v AS SELECT 1
-- hint: it is a statement of the shell sbon sql, not of a query; see also sbon stream and sbon query
CREATE VIEW v AS SELECT 1
--
-- expect: not-a-select 1:1
-- says: only SELECT is allowed: INSERT INTO flights VALUES (1)
-- hint: rows come from sources: sbon stream attach, or sbon stream push
INSERT INTO flights VALUES (1)
--
-- expect: not-a-select 1:1
-- says: only SELECT is allowed: pause query late
-- hint: a query cannot be paused: sbon query stop ends it, and sbon submit begins another one
pause query late
--
-- expect: not-a-select 1:1
-- says: only SELECT is allowed: UPDATE flights SET carrier = 'AA'
-- hint: rows of a stream never change; select others of them with WHERE or CASE
UPDATE flights SET carrier = 'AA'
--
-- expect: not-a-select 1:1
-- says: only SELECT is allowed: ALTER STREAM flights ADD COLUMN x int
-- hint: a stream keeps its columns: drop it and create it anew, or create a view of it
ALTER STREAM flights ADD COLUMN x int
--
-- expect: forbidden-operator 1:29
-- says: this operator is not supported: |>
-- hint: write SELECT ... FROM ... WHERE
SELECT carrier FROM flights |> WHERE dep_delay > 1
--
-- expect: forbidden-character 1:16
-- says: the character 'Ａ' has no place outside of quotes
-- hint: remove it
SELECT carrier ＡＮＤ origin FROM flights
--
-- expect: unknown-column 1:8
-- says: f has no column 'count': count
-- hint: f has ts, carrier, dep_delay, origin, distance, limit, scheduled
SELECT count FROM flights f
--
-- expect: empty-query 1:1
-- says: there is no query
-- hint: write SELECT expressions FROM stream WHERE condition
--
-- expect: ambiguous-expression 1:8
-- says: it is not clear what belongs together: origin NOT IN ('JFK') = (carrier = 'UA') AS x
-- hint: add brackets
SELECT origin NOT IN ('JFK') = (carrier = 'UA') AS x FROM flights
--
-- expect: not-repeatable 1:8
-- says: localtime gives another result each time: localtime()
-- hint: a batch that is run again must give the same rows; use the event time
SELECT localtime() FROM flights
--
-- expect: aggregate-without-window 1:59
-- says: a stream has no end, so its groups need one: carrier
-- hint: GROUP BY window(ts, '1 hour'), carrier
SELECT carrier, avg(dep_delay) AS a FROM flights GROUP BY carrier
--
-- expect: aggregate-without-window 4:10
-- says: a stream has no end, so its groups need one: carrier
-- hint: GROUP BY window(ts, '1 hour'), carrier
SELECT carrier,
       count(*) AS n
FROM flights
GROUP BY carrier
HAVING count(*) > 3
--
-- expect: aggregate-without-window 1:8
-- says: a stream has no end, so an aggregate needs a window: max(n) AS m
-- hint: GROUP BY window, or GROUP BY window(window_time(window), '1 day')
SELECT max(n) AS m FROM (SELECT window, carrier, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), carrier)
--
-- expect: aggregate-without-window 1:118
-- says: a stream has no end, so its groups need one: carrier
-- hint: GROUP BY window(event time, '1 hour'), carrier; the sub-query would have to select window
SELECT max(n) AS m FROM (SELECT carrier, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), carrier) GROUP BY carrier
--
-- expect: aggregate-without-window 1:77
-- says: a stream has no end, so its groups need one: carrier
-- hint: GROUP BY window(event time, '1 hour'), carrier; the sub-query would have to select ts, the event time of flights
SELECT count(*) AS n FROM (SELECT carrier, dep_delay FROM flights) GROUP BY carrier
--
-- expect: bad-window 1:44
-- says: the window is not over the event time: window(scheduled, '1 hour')
-- hint: GROUP BY window(ts, '1 hour')
SELECT count(*) AS n FROM flights GROUP BY window(scheduled, '1 hour')
--
-- expect: unknown-column 1:51
-- says: flights has no column 'boarding': boarding
-- hint: flights has ts, carrier, dep_delay, origin, distance, limit, scheduled
SELECT count(*) AS n FROM flights GROUP BY window(boarding, '1 hour')
--
-- expect: bad-window 1:44
-- says: the window is not over the event time: window(ts + INTERVAL 1 MONTH, '1 hour')
-- hint: GROUP BY window(ts, '1 hour')
SELECT count(*) AS n FROM flights GROUP BY window(ts + INTERVAL 1 MONTH, '1 hour')
--
-- expect: bad-window 1:44
-- says: the window is not over the event time: window(to_timestamp(carrier), '1 hour')
-- hint: GROUP BY window(ts, '1 hour')
SELECT count(*) AS n FROM flights GROUP BY window(to_timestamp(carrier), '1 hour')
--
-- expect: bad-window 1:44
-- says: window takes the event time and a length, a slide and a start: window('1 hour')
-- hint: write window(event time, '1 hour')
SELECT count(*) AS n FROM flights GROUP BY window('1 hour')
--
-- expect: bad-window 1:44
-- says: window takes the event time and a length, a slide and a start: window(ts)
-- hint: write window(event time, '1 hour')
SELECT count(*) AS n FROM flights GROUP BY window(ts)
--
-- expect: bad-window 1:55
-- says: no length of time, or one of more than 3650 days: distance
-- hint: write a number of weeks, days, hours, minutes, seconds or milliseconds: '30 days'
SELECT count(*) AS n FROM flights GROUP BY window(ts, distance)
--
-- expect: bad-window 1:55
-- says: months and years differ in length: '1 month'
-- hint: write a number of weeks, days, hours, minutes, seconds or milliseconds: '30 days'
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 month')
--
-- expect: bad-window 1:55
-- says: months and years differ in length: INTERVAL '2' YEARS
-- hint: write a number of weeks, days, hours, minutes, seconds or milliseconds: '30 days'
SELECT count(*) AS n FROM flights GROUP BY window(ts, INTERVAL 2 YEARS)
--
-- expect: bad-window 1:55
-- says: no length of time, or one of more than 3650 days: 'an hour'
-- hint: write a number of weeks, days, hours, minutes, seconds or milliseconds: '30 days'
SELECT count(*) AS n FROM flights GROUP BY window(ts, 'an hour')
--
-- expect: bad-window 1:55
-- says: no length of time, or one of more than 3650 days: ''
-- hint: write a number of weeks, days, hours, minutes, seconds or milliseconds: '30 days'
SELECT count(*) AS n FROM flights GROUP BY window(ts, '')
--
-- expect: bad-window 1:55
-- says: no length of time, or one of more than 3650 days: 3600
-- hint: write a number of weeks, days, hours, minutes, seconds or milliseconds: '30 days'
SELECT count(*) AS n FROM flights GROUP BY window(ts, 3600)
--
-- expect: bad-window 1:55
-- says: a window is longer than nothing: '0 seconds'
-- hint: write '1 hour'
SELECT count(*) AS n FROM flights GROUP BY window(ts, '0 seconds')
--
-- expect: bad-window 1:55
-- says: a window is longer than nothing: '-1 hour'
-- hint: write '1 hour'
SELECT count(*) AS n FROM flights GROUP BY window(ts, '-1 hour')
--
-- expect: bad-window 1:65
-- says: rows between the windows would be lost: '2 hours'
-- hint: slide by at most the window's length
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour', '2 hours')
--
-- expect: bad-window 1:65
-- says: a slide is longer than nothing: '0 minutes'
-- hint: write at most the window's length
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour', '0 minutes')
--
-- expect: bad-window 1:75
-- says: a start is from 0 on and less than the slide: '1 hour'
-- hint: leave it out
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour', '1 hour', '1 hour')
--
-- expect: bad-window 1:75
-- says: a start is from 0 on and less than the slide: '-5 minutes'
-- hint: leave it out
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour', '1 hour', '-5 minutes')
--
-- expect: bad-window 1:64
-- says: 86400 windows would hold each row, 100 may: '1 second'
-- hint: slide by '864 seconds' or more
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 day', '1 second')
--
-- expect: bad-window 1:44
-- says: window takes the event time and a length, a slide and a start: window(ts, '1 hour', '15 minutes', '0 minutes', '1 minute')
-- hint: write window(event time, '1 hour')
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour', '15 minutes', '0 minutes', '1 minute')
--
-- expect: bad-window 1:55
-- says: months and years differ in length: '20 years'
-- hint: write a number of weeks, days, hours, minutes, seconds or milliseconds: '30 days'
SELECT count(*) AS n FROM flights GROUP BY window(ts, '20 years')
--
-- expect: bad-window 1:44
-- says: session_window takes the event time and one length, that of the gap: session_window(ts, '10 minutes', '5 minutes')
-- hint: write session_window(event time, '1 hour')
SELECT count(*) AS n FROM flights GROUP BY session_window(ts, '10 minutes', '5 minutes')
--
-- expect: bad-window 1:44
-- says: session_window takes the event time and one length, that of the gap: session_window(ts)
-- hint: write session_window(event time, '1 hour')
SELECT count(*) AS n FROM flights GROUP BY session_window(ts)
--
-- expect: bad-window 1:63
-- says: a window is longer than nothing: '0 minutes'
-- hint: write '1 hour'
SELECT count(*) AS n FROM flights GROUP BY session_window(ts, '0 minutes')
--
-- expect: bad-window 1:63
-- says: no length of time, or one of more than 3650 days: CASE WHEN carrier = 'AA' THEN '5 minutes' ELSE '1 hour' END
-- hint: write a number of weeks, days, hours, minutes, seconds or milliseconds: '30 days'
SELECT count(*) AS n FROM flights GROUP BY session_window(ts, CASE WHEN carrier = 'AA' THEN '5 minutes' ELSE '1 hour' END)
--
-- expect: unsupported-window 1:66
-- says: a second window: window(ts, '2 hours')
-- hint: remove one of them; a window over the windows of a sub-query is window(window_time(window), '1 day')
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), window(ts, '2 hours')
--
-- expect: unsupported-window 1:66
-- says: a second window: session_window(ts, '2 hours')
-- hint: remove one of them; a window over the windows of a sub-query is window(window_time(window), '1 day')
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), session_window(ts, '2 hours')
--
-- expect: not-grouped 1:8
-- says: carrier is neither grouped by nor aggregated: carrier
-- hint: add it to GROUP BY, or take max(carrier)
SELECT carrier, count(*) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: not-grouped 1:14
-- says: origin is neither grouped by nor aggregated: origin
-- hint: add it to GROUP BY, or take max(origin)
SELECT upper(origin) AS o, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), carrier
--
-- expect: not-grouped 1:72
-- says: carrier is neither grouped by nor aggregated: carrier
-- hint: add it to GROUP BY, or take max(carrier)
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour') HAVING carrier = 'AA'
--
-- expect: aggregate-without-window 1:8
-- says: a stream has no end, so an aggregate needs a window: carrier
-- hint: GROUP BY window(ts, '1 hour')
SELECT carrier FROM flights HAVING carrier = 'AA'
--
-- expect: unsupported-aggregate 1:8
-- says: DISTINCT inside an aggregate keeps all values: count(DISTINCT carrier)
-- hint: approx_count_distinct(column), or aggregate over SELECT DISTINCT window(event time, '1 hour'), column
SELECT count(DISTINCT carrier) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-aggregate 1:8
-- says: DISTINCT inside an aggregate keeps all values: sum(DISTINCT distance)
-- hint: approx_count_distinct(column), or aggregate over SELECT DISTINCT window(event time, '1 hour'), column
SELECT sum(DISTINCT distance) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-aggregate 1:8
-- says: collect_list keeps every row: collect_list(carrier)
-- hint: sum, count, avg, min, max, stddev, approx_count_distinct do not
SELECT collect_list(carrier) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-aggregate 1:8
-- says: collect_set keeps every row: collect_set(carrier)
-- hint: sum, count, avg, min, max, stddev, approx_count_distinct do not
SELECT collect_set(carrier) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-aggregate 1:8
-- says: median keeps every row: median(dep_delay)
-- hint: sum, count, avg, min, max, stddev, approx_count_distinct do not
SELECT median(dep_delay) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-aggregate 1:8
-- says: this keeps every row of a group: percentile_cont(0.5) WITHIN GROUP (ORDER BY dep_delay)
-- hint: avg, stddev, min and max keep a few numbers
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY dep_delay) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-aggregate 1:8
-- says: first hangs on the rows' order: first(carrier)
-- hint: min, max, min_by and max_by do not
SELECT first(carrier) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-aggregate 1:12
-- says: count has no place here: count(*)
-- hint: aggregates are allowed in SELECT and HAVING; to aggregate an aggregate, group a sub-query
SELECT sum(count(*)) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-aggregate 1:12
-- says: avg has no place here: avg(dep_delay)
-- hint: aggregates are allowed in SELECT and HAVING; to aggregate an aggregate, group a sub-query
SELECT max(avg(dep_delay)) AS n FROM flights GROUP BY window(ts, '1 hour'), carrier
--
-- expect: bad-sql 1:8
-- says: sum takes 1 argument, not 2: sum(dep_delay, distance)
-- hint: write sum(column)
SELECT sum(dep_delay, distance) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: bad-sql 1:8
-- says: sum takes 1 argument, not 0: sum()
-- hint: write sum(column)
SELECT sum() AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-expression 1:12
-- says: * has no place here: *
-- hint: name a column
SELECT sum(*) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-aggregate 1:35
-- says: count has no place here: count(*)
-- hint: aggregates are allowed in SELECT and HAVING; to aggregate an aggregate, group a sub-query
SELECT carrier FROM flights WHERE count(*) > 3
--
-- expect: unsupported-aggregate 1:47
-- says: avg has no place here: avg(dep_delay)
-- hint: aggregates are allowed in SELECT and HAVING; to aggregate an aggregate, group a sub-query
SELECT carrier FROM flights WHERE dep_delay > avg(dep_delay)
--
-- expect: aggregate-without-window 1:82
-- says: a stream has no end, so its groups need one: carrier
-- hint: GROUP BY window(ts, '1 hour'), carrier
SELECT carrier, count(*) FILTER (WHERE dep_delay > 3) AS n FROM flights GROUP BY carrier
--
-- expect: unsupported-aggregate 1:66
-- says: sum has no place here: sum(distance)
-- hint: aggregates are allowed in SELECT and HAVING; to aggregate an aggregate, group a sub-query
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), sum(distance)
--
-- expect: not-repeatable 1:66
-- says: rand gives another result each time: rand()
-- hint: a batch that is run again must give the same rows; use the event time
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), rand()
--
-- expect: not-repeatable 1:51
-- says: current_timestamp gives another result each time: current_timestamp()
-- hint: a batch that is run again must give the same rows; use the event time
SELECT count(*) AS n FROM flights GROUP BY window(current_timestamp(), '1 hour')
--
-- expect: unsupported-aggregate 1:8
-- says: count has no place here: count(*)
-- hint: aggregates are allowed in SELECT and HAVING; to aggregate an aggregate, group a sub-query
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), 1
--
-- expect: unknown-column 1:66
-- says: flights has no column 'gate': gate
-- hint: flights has ts, carrier, dep_delay, origin, distance, limit, scheduled
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), gate
--
-- expect: unsupported-group-by 1:53
-- says: only one list of keys is supported: GROUPING SETS ((carrier), ())
-- hint: write a query for each list of keys, joined by UNION ALL
SELECT carrier, count(*) AS n FROM flights GROUP BY GROUPING SETS ((carrier), ())
--
-- expect: unsupported-group-by 1:53
-- says: only one list of keys is supported: CUBE (carrier, origin)
-- hint: write a query for each list of keys, joined by UNION ALL
SELECT carrier, count(*) AS n FROM flights GROUP BY CUBE (carrier, origin)
--
-- expect: unsupported-group-by 1:53
-- says: only one list of keys is supported: ROLLUP (carrier, origin)
-- hint: write a query for each list of keys, joined by UNION ALL
SELECT carrier, count(*) AS n FROM flights GROUP BY ROLLUP (carrier, origin)
--
-- expect: unsupported-group-by 1:53
-- says: ROLLUP is not supported: GROUP BY carrier WITH ROLLUP
-- hint: list the keys
SELECT carrier, count(*) AS n FROM flights GROUP BY carrier WITH ROLLUP
--
-- expect: unsupported-group-by 1:44
-- says: ALL is not supported: GROUP BY ALL
-- hint: list the keys
SELECT carrier, count(*) AS n FROM flights GROUP BY ALL
--
-- expect: aggregate-without-window 1:17
-- says: a stream has no end, so its groups need one: carrier, origin
-- hint: SELECT DISTINCT window(ts, '1 hour'), carrier, origin
SELECT DISTINCT carrier, origin FROM flights
--
-- expect: unknown-column 1:17
-- says: there is no window here: `window`.start
-- hint: GROUP BY window(ts, '1 hour')
SELECT DISTINCT window.start, carrier FROM flights
--
-- expect: unsupported-distinct 1:1
-- says: DISTINCT over groups: SELECT DISTINCT carrier, count(*) AS n FROM flights GROUP...
-- hint: the groups differ already; leave DISTINCT out
SELECT DISTINCT carrier, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), carrier
--
-- expect: unsupported-distinct 1:21
-- says: DISTINCT ON: DISTINCT ON (carrier)
-- hint: GROUP BY window(event time, '1 hour')
SELECT DISTINCT ON (carrier) carrier, origin FROM flights
--
-- expect: unsupported-window 1:8
-- says: session_window belongs into GROUP BY: session_window(ts, '5 minutes')
-- hint: GROUP BY session_window(event time, '1 hour')
SELECT session_window(ts, '5 minutes') AS s FROM flights
--
-- expect: unknown-column 1:8
-- says: there is no window here: `window`.start
-- hint: GROUP BY window(ts, '1 hour')
SELECT window.start FROM flights
--
-- expect: not-grouped 1:8
-- says: the window has no such part: `window`.middle
-- hint: write window.start or window.end
SELECT window.middle, count(*) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: not-grouped 1:8
-- says: the window has no such part: session_window.start
-- hint: write window.start or window.end
SELECT session_window.start, count(*) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-window 1:17
-- says: OVER needs all rows in order: row_number() OVER (PARTITION BY carrier ORDER BY ts)
-- hint: aggregate by GROUP BY window(event time, '1 hour')
SELECT carrier, row_number() OVER (PARTITION BY carrier ORDER BY ts) AS r FROM flights
--
-- expect: unsupported-window 1:49
-- says: OVER needs all rows in order: WINDOW w AS (PARTITION BY carrier ORDER BY ts)
-- hint: aggregate by GROUP BY window(event time, '1 hour')
SELECT carrier, rank() OVER w AS r FROM flights WINDOW w AS (PARTITION BY carrier ORDER BY ts)
--
-- expect: unsupported-window 1:17
-- says: lag needs all rows in order: lag(dep_delay)
-- hint: aggregate by GROUP BY window(event time, '1 hour')
SELECT carrier, lag(dep_delay) AS r FROM flights
--
-- expect: unsupported-window 1:17
-- says: OVER needs all rows in order: avg(dep_delay) OVER (PARTITION BY carrier)
-- hint: aggregate by GROUP BY window(event time, '1 hour')
SELECT carrier, avg(dep_delay) OVER (PARTITION BY carrier) AS r FROM flights
--
-- expect: unsupported-window 1:29
-- says: QUALIFY is not supported: QUALIFY row_number() OVER (PARTITION BY carrier ORDER BY ...
-- hint: aggregate by GROUP BY window(event time, '1 hour'), with HAVING
SELECT carrier FROM flights QUALIFY row_number() OVER (PARTITION BY carrier ORDER BY ts) = 1
--
-- expect: join-without-bound 1:38
-- says: rows would be kept for ever: the join has no bound in time: weather w ON f.origin = w.origin
-- hint: bound it: w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts, or by a join window (--join-window, join_window_ms)
SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin
--
-- expect: join-without-bound 3:6
-- says: rows would be kept for ever: the join has no bound in time: weather w ON f.origin = w.origin AND w.ts > f.ts
-- hint: bound it: w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts, or by a join window (--join-window, join_window_ms)
SELECT f.carrier
FROM flights f
JOIN weather w ON f.origin = w.origin AND w.ts > f.ts
--
-- expect: join-without-bound 1:43
-- says: rows would be kept for ever: the join has no bound in time: weather w ON f.origin = w.origin AND w.ts <= f.ts + INTER...
-- hint: bound it: w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts, or by a join window (--join-window, join_window_ms)
SELECT f.carrier FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND w.ts <= f.ts + INTERVAL 1 HOUR
--
-- expect: join-without-bound 1:38
-- says: rows would be kept for ever: the join has no bound in time: weather w ON f.origin = w.origin AND w.ts BETWEEN f.ts - ...
-- hint: bound it: w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts, or by a join window (--join-window, join_window_ms)
SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin AND w.ts BETWEEN f.ts - INTERVAL 1 MONTH AND f.ts
--
-- expect: join-without-bound 1:38
-- says: rows would be kept for ever: the join has no bound in time: weather w ON f.origin = w.origin AND w.ts = f.scheduled
-- hint: bound it: w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts, or by a join window (--join-window, join_window_ms)
SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin AND w.ts = f.scheduled
--
-- expect: join-without-bound 1:38
-- says: rows would be kept for ever: the join has no bound in time: (SELECT origin, temp FROM weather) w ON f.origin = w.orig...
-- hint: bound it by the event times of both sides; the sub-query would have to select ts, the event time of weather
SELECT f.carrier FROM flights f JOIN (SELECT origin, temp FROM weather) w ON f.origin = w.origin AND w.temp > 0
--
-- expect: join-without-bound 1:68
-- says: rows would be kept for ever: the join has no bound in time: (SELECT origin, temp FROM weather) w ON f.origin = w.origin
-- hint: bound it by the event times of both sides; the sub-query would have to select ts, the event time of flights
SELECT f.carrier FROM (SELECT carrier, origin FROM flights) f JOIN (SELECT origin, temp FROM weather) w ON f.origin = w.origin
--
-- expect: join-without-bound 1:38
-- says: rows would be kept for ever: the join has no bound in time: (SELECT origin, max(temp) AS t FROM weather GROUP BY wind...
-- hint: bound it by the event times of both sides; the sub-query would have to select window
SELECT f.carrier FROM flights f JOIN (SELECT origin, max(temp) AS t FROM weather GROUP BY window(ts, '1 hour'), origin) w ON f.origin = w.origin
--
-- expect: join-without-bound 1:38
-- says: rows would be kept for ever: the join has no bound in time: flights b ON a.origin = b.origin
-- hint: bound it: b.ts BETWEEN a.ts - INTERVAL 1 HOUR AND a.ts, or by a join window (--join-window, join_window_ms)
SELECT a.carrier FROM flights a JOIN flights b ON a.origin = b.origin
--
-- expect: join-without-equality 1:38
-- says: a join needs an equality between a column of each side: weather w ON w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts
-- hint: add one: f.origin = w.origin
SELECT f.carrier FROM flights f JOIN weather w ON w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts
--
-- expect: join-without-equality 1:38
-- says: a join needs an equality between a column of each side: weather w ON f.origin <> w.origin AND w.ts BETWEEN f.ts -...
-- hint: add one: f.origin = w.origin
SELECT f.carrier FROM flights f JOIN weather w ON f.origin <> w.origin AND w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts
--
-- expect: join-without-equality 1:38
-- says: a join needs an equality between a column of each side: weather w ON f.origin = 'JFK' AND w.ts BETWEEN f.ts - INT...
-- hint: add one: f.origin = w.origin
SELECT f.carrier FROM flights f JOIN weather w ON f.origin = 'JFK' AND w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts
--
-- expect: join-without-equality 1:44
-- says: a join needs an equality between a column of each side: weather w
-- hint: add one: f.origin = w.origin
SELECT f.carrier FROM flights f CROSS JOIN weather w
--
-- expect: join-without-equality 1:34
-- says: a join needs an equality between a column of each side: weather w
-- hint: add one: f.origin = w.origin
SELECT f.carrier FROM flights f, weather w
--
-- expect: join-without-equality 1:34
-- says: a join needs an equality between a column of each side: weather w
-- hint: add one: f.origin = w.origin
SELECT f.carrier FROM flights f, weather w WHERE f.origin = w.origin OR w.ts = f.ts
--
-- expect: unsupported-join 1:38
-- says: USING is not supported: weather AS w
-- hint: write ON f.origin = w.origin AND f.ts = w.ts
SELECT f.carrier FROM flights f JOIN weather w USING (origin, ts)
--
-- expect: unsupported-join 1:46
-- says: NATURAL JOIN is not supported: weather AS w
-- hint: write JOIN ... ON, with an equality and a bound in time
SELECT f.carrier FROM flights f NATURAL JOIN weather w
--
-- expect: unsupported-join 1:48
-- says: LEFT ANTI JOIN is not supported: weather AS w
-- hint: LEFT JOIN ... ON ..., and WHERE a column of w IS NULL
SELECT f.carrier FROM flights f LEFT ANTI JOIN weather w ON f.origin = w.origin AND f.ts = w.ts
--
-- expect: unsupported-join 1:49
-- says: RIGHT SEMI JOIN is not supported: weather AS w
-- hint: swap the sides and write LEFT SEMI JOIN, or WHERE EXISTS (SELECT ...)
SELECT f.carrier FROM flights f RIGHT SEMI JOIN weather w ON f.origin = w.origin AND f.ts = w.ts
--
-- expect: duplicate-alias 1:42
-- says: two relations are named 'flights': flights
-- hint: give one of them another name with AS
SELECT flights.carrier FROM flights JOIN flights ON flights.ts = flights.ts
--
-- expect: duplicate-alias 1:33
-- says: two relations are named 'a': weather AS a
-- hint: give one of them another name with AS
SELECT a.ts FROM flights a JOIN weather a ON a.ts = a.ts
--
-- expect: ambiguous-column 1:8
-- says: 'origin' is in more than one relation: origin
-- hint: write f.origin or w.origin
SELECT origin FROM flights f JOIN weather w ON f.origin = w.origin AND f.ts = w.ts
--
-- expect: ambiguous-column 1:75
-- says: 'ts' is in more than one relation: ts
-- hint: write f.ts or w.ts
SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin AND ts = w.ts
--
-- expect: unknown-column 1:8
-- says: f has no column 'temp': f.temp
-- hint: f has ts, carrier, dep_delay, origin, distance, limit, scheduled
SELECT f.temp FROM flights f JOIN weather w ON f.origin = w.origin AND f.ts = w.ts
--
-- expect: unknown-column 1:62
-- says: w has no column 'orgin': w.orgin
-- hint: did you mean origin?
SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.orgin AND f.ts = w.ts
--
-- expect: unknown-alias 1:8
-- says: no stream of this query is called 'x': x.carrier
-- hint: write f.carrier or w.carrier
SELECT x.carrier FROM flights f JOIN weather w ON f.origin = w.origin AND f.ts = w.ts
--
-- expect: unsupported-aggregate 1:91
-- says: count has no place here: count(*)
-- hint: aggregates are allowed in SELECT and HAVING; to aggregate an aggregate, group a sub-query
SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin AND f.ts = w.ts AND count(*) > 1
--
-- expect: join-without-equality 1:38
-- says: a join needs an equality between a column of each side: weather w
-- hint: add one: f.origin = w.origin
SELECT f.carrier FROM flights f JOIN weather w
--
-- expect: unsupported-table-function 1:39
-- says: FROM takes streams and sub-queries: LATERAL (SELECT f.carrier AS x) AS l
-- hint: FROM stream, or FROM (SELECT ...) alias
SELECT f.carrier, l.x FROM flights f, LATERAL (SELECT f.carrier AS x) l
--
-- expect: unsupported-table-function 1:28
-- says: FROM takes streams and sub-queries: LATERAL (SELECT 1 AS x)
-- hint: FROM stream, or FROM (SELECT ...) alias
SELECT * FROM flights JOIN LATERAL (SELECT 1 AS x) ON true
--
-- expect: unsupported-subquery 1:35
-- says: NOT EXISTS and NOT IN are not supported: NOT origin IN (SELECT origin FROM weather)
-- hint: LEFT JOIN ... and WHERE a column of the right side IS NULL
SELECT carrier FROM flights WHERE origin NOT IN (SELECT origin FROM weather)
--
-- expect: unsupported-subquery 1:37
-- says: NOT EXISTS and NOT IN are not supported: NOT EXISTS(SELECT 1 FROM weather AS w WHERE w.origin = f....
-- hint: LEFT JOIN ... and WHERE a column of the right side IS NULL
SELECT carrier FROM flights f WHERE NOT EXISTS (SELECT 1 FROM weather w WHERE w.origin = f.origin AND w.ts = f.ts)
--
-- expect: join-without-bound 1:45
-- says: rows would be kept for ever: the join has no bound in time: SELECT 1 FROM weather w WHERE w.origin = f.origin
-- hint: bound it: w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts, or by a join window (--join-window, join_window_ms)
SELECT carrier FROM flights f WHERE EXISTS (SELECT 1 FROM weather w WHERE w.origin = f.origin)
--
-- expect: unsupported-subquery 1:37
-- says: a sub-query has no place here: EXISTS(SELECT 1 FROM weather AS w WHERE w.ts = f.ts)
-- hint: FROM (SELECT ...), EXISTS (SELECT ...) or x IN (SELECT ...) among the conditions of WHERE
SELECT carrier FROM flights f WHERE EXISTS (SELECT 1 FROM weather w WHERE w.ts = f.ts) OR carrier = 'AA'
--
-- expect: bad-sql 1:45
-- says: IN takes one column: (SELECT origin, ts FROM weather)
-- hint: select one expression
SELECT carrier FROM flights WHERE origin IN (SELECT origin, ts FROM weather)
--
-- expect: bad-sql 1:51
-- says: IN takes one column: (SELECT origin, ts FROM weather)
-- hint: select one expression
SELECT carrier FROM flights WHERE (origin, ts) IN (SELECT origin, ts FROM weather)
--
-- expect: unsupported-subquery 1:45
-- says: only SELECT ... FROM ... WHERE is allowed here: (SELECT origin FROM weather GROUP BY window(ts, '1 hour')...
-- hint: join with the sub-query instead
SELECT carrier FROM flights WHERE origin IN (SELECT origin FROM weather GROUP BY window(ts, '1 hour'), origin)
--
-- expect: unsupported-subquery 1:47
-- says: a sub-query has no place here: (SELECT avg(dep_delay) FROM flights)
-- hint: FROM (SELECT ...), EXISTS (SELECT ...) or x IN (SELECT ...) among the conditions of WHERE
SELECT carrier FROM flights WHERE dep_delay > (SELECT avg(dep_delay) FROM flights)
--
-- expect: unsupported-subquery 1:17
-- says: a sub-query has no place here: (SELECT max(temp) FROM weather AS w WHERE w.origin = f.or...
-- hint: FROM (SELECT ...), EXISTS (SELECT ...) or x IN (SELECT ...) among the conditions of WHERE
SELECT carrier, (SELECT max(temp) FROM weather w WHERE w.origin = f.origin) AS t FROM flights f
--
-- expect: unsupported-expression 1:47
-- says: ALL and ANY are not supported: ALL (SELECT temp FROM weather)
-- hint: join with the sub-query, or list the values: IN (1, 2)
SELECT carrier FROM flights WHERE dep_delay > ALL (SELECT temp FROM weather)
--
-- expect: unknown-column 1:75
-- says: w has no column 'orign': w.orign
-- hint: did you mean origin?
SELECT carrier FROM flights f WHERE EXISTS (SELECT 1 FROM weather w WHERE w.orign = f.origin AND w.ts = f.ts)
--
-- expect: unsupported-union 1:24
-- says: UNION without ALL compares all rows, and streams have no end: UNION
-- hint: write UNION ALL; equal rows of a window become one by SELECT DISTINCT window(event time, '1 hour'), ... FROM (...)
SELECT ts FROM flights UNION SELECT ts FROM weather
--
-- expect: unsupported-union 1:24
-- says: UNION without ALL compares all rows, and streams have no end: UNION
-- hint: write UNION ALL; equal rows of a window become one by SELECT DISTINCT window(event time, '1 hour'), ... FROM (...)
SELECT ts FROM flights UNION DISTINCT SELECT ts FROM weather
--
-- expect: unsupported-union 2:1
-- says: INTERSECT compares all rows, and streams have no end: INTERSECT
-- hint: WHERE EXISTS (SELECT ...), with an equality and a bound in time
SELECT ts FROM flights
INTERSECT
SELECT ts FROM weather
--
-- expect: unsupported-union 1:24
-- says: EXCEPT compares all rows, and streams have no end: EXCEPT
-- hint: LEFT JOIN ... and WHERE a column of the right side IS NULL
SELECT ts FROM flights EXCEPT ALL SELECT ts FROM weather
--
-- expect: unsupported-union 1:24
-- says: MINUS compares all rows, and streams have no end: MINUS
-- hint: LEFT JOIN ... and WHERE a column of the right side IS NULL
SELECT ts FROM flights MINUS SELECT ts FROM weather
--
-- expect: bad-union 1:34
-- says: 1 columns before UNION, 2 after it: SELECT ts, origin FROM weather
-- hint: select as many columns in each part
SELECT ts FROM flights UNION ALL SELECT ts, origin FROM weather
--
-- expect: bad-union 3:12
-- says: double here, string in another part of the UNION: temp
-- hint: write CAST(temp AS string)
SELECT ts, origin FROM flights
UNION ALL
SELECT ts, temp FROM weather
--
-- expect: bad-union 1:12
-- says: int here, double in another part of the UNION: distance
-- hint: write CAST(distance AS double)
SELECT ts, distance AS x FROM flights UNION ALL SELECT ts, temp FROM weather
--
-- expect: bad-union 1:51
-- says: int here, double in another part of the UNION: distance
-- hint: write CAST(distance AS double)
SELECT window.start, sum(x) AS n FROM (SELECT ts, distance AS x FROM flights UNION ALL SELECT ts, temp FROM weather) GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-union 1:34
-- says: BY NAME is not supported: BY NAME
-- hint: write the columns of each part in the same order
SELECT ts FROM flights UNION ALL BY NAME SELECT ts FROM weather
--
-- expect: unsupported-order-by 1:57
-- says: ORDER BY is not supported: ORDER BY ts
-- hint: a stream has no end, so it cannot be sorted; sort where the rows arrive
SELECT ts FROM flights UNION ALL SELECT ts FROM weather ORDER BY ts
--
-- expect: unsupported-limit 1:57
-- says: LIMIT is not supported: LIMIT 3
-- hint: stop the query when there are rows enough: sbon query stop
SELECT ts FROM flights UNION ALL SELECT ts FROM weather LIMIT 3
--
-- expect: unsupported-union 1:79
-- says: an outer join inside of a UNION that is grouped: weather w ON f.origin = w.origin AND f.ts = w.ts
-- hint: group each part of the UNION by itself
SELECT window.start, count(*) AS n FROM (SELECT f.ts FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND f.ts = w.ts UNION ALL SELECT ts FROM weather) GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-order-by 1:50
-- says: ORDER BY is not supported: ORDER BY ts
-- hint: a stream has no end, so it cannot be sorted; sort where the rows arrive
SELECT carrier FROM (SELECT carrier FROM flights ORDER BY ts) WHERE carrier = 'AA'
--
-- expect: unsupported-order-by 1:29
-- says: ORDER BY is not supported: ORDER BY ts DESC
-- hint: a stream has no end, so it cannot be sorted; sort where the rows arrive
SELECT carrier FROM flights ORDER BY ts DESC
--
-- expect: unsupported-limit 1:50
-- says: LIMIT is not supported: LIMIT 5
-- hint: stop the query when there are rows enough: sbon query stop
SELECT carrier FROM (SELECT carrier FROM flights LIMIT 5)
--
-- expect: unsupported-clause 1:29
-- says: DISTRIBUTE BY is not supported: DISTRIBUTE BY carrier
-- hint: leave it out: the engine spreads the rows
SELECT carrier FROM flights DISTRIBUTE BY carrier
--
-- expect: unsupported-clause 1:29
-- says: CLUSTER BY is not supported: CLUSTER BY carrier
-- hint: leave it out: the engine spreads the rows
SELECT carrier FROM flights CLUSTER BY carrier
--
-- expect: unsupported-limit 1:29
-- says: FETCH is not supported: FETCH FIRST 3 ROWS ONLY
-- hint: stop the query when there are rows enough: sbon query stop
SELECT carrier FROM flights FETCH FIRST 3 ROWS ONLY
--
-- expect: unsupported-cte 1:6
-- says: a recursion has no end: RECURSIVE
-- hint: write WITH, and each query after those it reads
WITH RECURSIVE t AS (SELECT ts FROM flights) SELECT ts FROM t
--
-- expect: duplicate-alias 1:37
-- says: WITH names this twice: t
-- hint: give one of them another name
WITH t AS (SELECT ts FROM flights), t AS (SELECT ts FROM weather) SELECT ts FROM t
--
-- expect: unknown-column 1:43
-- says: t has no column 'carrier': carrier
-- hint: t has ts
WITH t AS (SELECT ts FROM flights) SELECT carrier FROM t
--
-- expect: unknown-stream 1:27
-- says: there is no stream 'u': u
-- hint: there are flights, idle, union, weather
WITH t AS (SELECT ts FROM u), u AS (SELECT ts FROM flights) SELECT ts FROM t
--
-- expect: unsupported-clause 1:6
-- says: an alias with columns: t(a)
-- hint: name the columns with AS
WITH t(a) AS (SELECT ts FROM flights) SELECT a FROM t
--
-- expect: unknown-stream 1:51
-- says: there is no stream 'tt': tt
-- hint: did you mean t?
WITH t AS (SELECT ts FROM flights) SELECT ts FROM tt
--
-- expect: unknown-column 1:58
-- says: flights has no column 'dep_dely': dep_dely
-- hint: did you mean dep_delay?
SELECT s.carrier FROM (SELECT carrier FROM flights WHERE dep_dely > 3) s
--
-- expect: unknown-column 1:8
-- says: s has no column 'delay': s.delay
-- hint: s has carrier, late
SELECT s.delay FROM (SELECT carrier, dep_delay AS late FROM flights) s
--
-- expect: unsupported-clause 1:21
-- says: TABLESAMPLE is not supported: flights TABLESAMPLE (100 ROWS)
-- hint: samples are not repeatable; filter by hash(column) % n = 0
SELECT carrier FROM flights TABLESAMPLE (100 ROWS)
--
-- expect: unsupported-clause 1:15
-- says: PIVOT is not supported: flights PIVOT(sum(dep_delay) FOR carrier IN ('AA', 'UA'))
-- hint: write the columns: sum(CASE WHEN key = 'a' THEN value END) AS a
SELECT * FROM flights PIVOT (sum(dep_delay) FOR carrier IN ('AA', 'UA'))
--
-- expect: unsupported-clause 1:15
-- says: PIVOT is not supported: flights UNPIVOT(v FOR k IN (dep_delay, distance))
-- hint: write the columns: sum(CASE WHEN key = 'a' THEN value END) AS a
SELECT * FROM flights UNPIVOT (v FOR k IN (dep_delay, distance))
--
-- expect: unsupported-generator 1:32
-- says: LATERAL is not supported: LATERAL VIEW explode(array(1, 2)) t AS x
-- hint: one row in gives at most one row out
SELECT carrier, x FROM flights LATERAL VIEW explode(array(1, 2)) t AS x
--
-- expect: unsupported-table-function 1:15
-- says: table functions are not supported: range(10)
-- hint: only streams of the catalogue can be read: sbon stream list
SELECT * FROM range(10)
--
-- expect: unsupported-table-function 1:15
-- says: FROM takes streams and sub-queries: VALUES (1), (2) AS t(a)
-- hint: FROM stream, or FROM (SELECT ...) alias
SELECT * FROM VALUES (1), (2) AS t(a)
--
-- expect: forbidden-path 1:15
-- says: files and databases cannot be read: parquet.`/etc/passwd`
-- hint: only streams of the catalogue can be read: sbon stream list
SELECT * FROM parquet.`/etc/passwd`
--
-- expect: unsupported-expression 1:8
-- says: * with conditions: * EXCEPT (carrier)
-- hint: name the columns
SELECT * EXCEPT (carrier) FROM flights
--
-- expect: unknown-function 1:8
-- says: struct is not among the allowed functions: struct(carrier, origin)
-- hint: did you mean trunc?
SELECT struct(carrier, origin) AS s FROM flights
--
-- expect: bad-sql 1:26
-- says: no type: void
-- hint: boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp
SELECT CAST(dep_delay AS void) AS x FROM flights
--
-- expect: unsupported-expression 1:8
-- says: this expression is not supported: carrier COLLATE UTF8_LCASE
-- hint: write it with arithmetic, comparisons, CASE, CAST, LIKE, IN, BETWEEN, IS NULL or a function
SELECT carrier COLLATE UTF8_LCASE AS x FROM flights
--
-- expect: unsupported-expression 1:13
-- says: this expression is not supported: TO_DATE('2013-01-01', 'yyyy')
-- hint: write it with arithmetic, comparisons, CASE, CAST, LIKE, IN, BETWEEN, IS NULL or a function
SELECT CAST('2013-01-01' AS date FORMAT 'yyyy') AS x FROM flights
--
-- expect: unsupported-group-by 1:66
-- says: no position in the SELECT list: 9
-- hint: there are 1 to 1, or name the column
SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), 9
--
-- expect: unsupported-aggregate 1:8
-- says: FILTER is not supported here: corr(dep_delay, distance) FILTER(WHERE carrier = 'AA')
-- hint: aggregate CASE WHEN condition THEN value END, or count_if(condition)
SELECT corr(dep_delay, distance) FILTER (WHERE carrier = 'AA') AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unsupported-aggregate 1:8
-- says: FILTER is not supported here: count(DISTINCT carrier) FILTER(WHERE distance > 3)
-- hint: aggregate CASE WHEN condition THEN value END, or count_if(condition)
SELECT count(DISTINCT carrier) FILTER (WHERE distance > 3) AS n FROM flights GROUP BY window(ts, '1 hour')
--
-- expect: unknown-column 1:128
-- says: subquery_1 has no column 'w': w
-- hint: a window with a name of its own is handed on as w_start and w_end, and one without as window or session_window
SELECT count(*) FROM (SELECT window(ts, '1 minute') AS w, count(*) AS n FROM flights GROUP BY window(ts, '1 minute')) GROUP BY w
--
-- expect: unknown-alias 1:8
-- says: no stream of this query is called 'w': w.start
-- hint: write w_start
SELECT w.start, n FROM (SELECT window(ts, '1 minute') AS w, count(*) AS n FROM flights GROUP BY window(ts, '1 minute'))
--
-- expect: bad-operand 1:8
-- says: carrier is a string, and no number: dep_delay + carrier
-- hint: CAST(carrier AS double), or TRY_CAST, which gives NULL for a text that is no number; || joins strings
SELECT dep_delay + carrier AS x FROM flights
--
-- expect: bad-operand 1:39
-- says: origin is a string, and no number: 2 * origin
-- hint: CAST(origin AS double), or TRY_CAST, which gives NULL for a text that is no number; || joins strings
SELECT carrier FROM flights WHERE 1 < 2 * origin
--
-- expect: bad-literal 1:46
-- says: no int can be compared with this: 'far'
-- hint: write one, or compare CAST(distance AS string)
SELECT carrier FROM flights WHERE distance > 'far'
--
-- expect: bad-literal 1:62
-- says: no double can be compared with this: 'b'
-- hint: write one, or compare CAST(dep_delay AS string)
SELECT carrier FROM flights WHERE dep_delay IN ('1', ' 2.5', 'b')
--
-- expect: bad-literal 1:72
-- says: no timestamp can be compared with this: 'tomorrow'
-- hint: write one, or compare CAST(ts AS string)
SELECT carrier FROM flights WHERE ts BETWEEN '2013-01-01 10:00:00' AND 'tomorrow'
--
-- expect: bad-literal 1:13
-- says: this is no double: 'x1'
-- hint: write one, or TRY_CAST, which gives NULL for an invalid text
SELECT CAST('x1' AS double) AS x FROM flights
--
-- expect: bad-literal 2:32
-- says: no double can be compared with this: 'warm'
-- hint: write one, or compare CAST(temp AS string)
SELECT f.carrier FROM flights AS f JOIN weather AS w ON f.origin = w.origin
  AND f.ts = w.ts AND w.temp = 'warm'
--
