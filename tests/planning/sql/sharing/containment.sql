-- Pairs of a wanted query and an offered one. The last stage of the wanted query is computed from that of the offered query, by
-- the third line over in0, or it runs alone.
-- shared: a subset of the columns, in another order and with other names
SELECT b AS y, ts AS t FROM u
SELECT ts, a, b FROM u
SELECT b AS y, ts AS t FROM in0
-- shared: a narrower filter
SELECT ts, a FROM u WHERE a > 10
SELECT ts, a FROM u WHERE a > 5
SELECT ts, a FROM in0 WHERE a > 10
-- shared: a filter that is the same in other words, and another
SELECT a FROM u WHERE b < 3 AND a BETWEEN 2 AND 4
SELECT a, b FROM u WHERE a >= 2 AND 4 >= a
SELECT a FROM in0 WHERE b < 3
-- shared: a value of a list
SELECT a, s FROM u WHERE s = 'x' AND a IN (1, 2)
SELECT a, s FROM u WHERE s IN ('x', 'y') AND a NOT IN (3) AND a < 3 AND s IS NOT NULL
SELECT a, s FROM in0 WHERE s = 'x' AND a IN (1, 2)
-- shared: one side of a disjunction
SELECT b FROM u WHERE a > 7
SELECT a, b FROM u WHERE a > 5 OR b < 3
SELECT b FROM in0 WHERE a > 7
-- shared: both sides of a disjunction
SELECT a FROM u WHERE a > 7 OR a < 1
SELECT a FROM u WHERE a <> 5
SELECT a FROM in0 WHERE a > 7 OR a < 1
-- shared: times written in full
SELECT ts FROM u WHERE ts >= TIMESTAMP '2013-01-02 00:00:00'
SELECT ts FROM u WHERE ts > DATE '2013-01-01'
SELECT ts FROM in0 WHERE ts >= CAST('2013-01-02 00:00:00' AS TIMESTAMP)
-- shared: expressions over columns, or as a column
SELECT upper(s) AS t, a + b AS c, a > 1 AS d FROM u WHERE upper(s) = 'X'
SELECT upper(s) AS o, a, b FROM u
SELECT o AS t, a + b AS c, a > 1 AS d FROM in0 WHERE o = 'X'
-- shared: a column of times by which groups end
SELECT date_trunc('hour', ts) AS h, a FROM u WHERE a = 1
SELECT ts, a FROM u
SELECT date_trunc('hour', ts) AS h, a FROM in0 WHERE a = 1
-- shared: fewer aggregates of the same groups
SELECT window.end AS e, max(b) AS m FROM u GROUP BY window(ts, '1 hour'), a
SELECT window.start AS x, window.end AS y, a AS k, count(*) AS n, max(b) AS m FROM u GROUP BY window(ts, '1 hour'), a
SELECT y AS e, m FROM in0
-- shared: groups of some keys
SELECT window.end AS e, a, stddev(b) AS d FROM u WHERE a > 2 GROUP BY window(ts, '1 hour'), a
SELECT window.end AS e, a, stddev(b) AS d FROM u WHERE a IS NOT NULL GROUP BY window(ts, '1 hour'), a
SELECT e, a, d FROM in0 WHERE a > 2
-- shared: a stricter HAVING
SELECT window.end AS e, a FROM u GROUP BY window(ts, '1 hour'), a HAVING count(*) > 5
SELECT window.end AS e, a, count(*) AS n FROM u GROUP BY window(ts, '1 hour'), a HAVING count(*) > 3
SELECT e, a FROM in0 WHERE n > 5
-- shared: sessions with fewer aggregates
SELECT session_window.end AS e, a, max(b) AS m FROM u GROUP BY session_window(ts, '5 minutes'), a HAVING count(*) > 1
SELECT session_window.end AS e, a, max(b) AS m, count(*) AS n FROM u GROUP BY session_window(ts, '5 minutes'), a
SELECT e, a, m FROM in0 WHERE n > 1
-- shared: sessions of all rows
SELECT session_window.end AS e, max(b) AS m FROM u GROUP BY session_window(ts, '5 minutes') HAVING count(*) > 1
SELECT session_window.end AS e, max(b) AS m, count(*) AS n FROM u GROUP BY session_window(ts, '5 minutes')
SELECT e, m FROM in0 WHERE n > 1
-- shared: a coarser window by the ends
SELECT window.start AS w, window.end AS e, sum(a) AS s, count(*) AS n, avg(b) AS v FROM u GROUP BY window(ts, '1 hour')
SELECT window.end AS e, sum(a) AS s, count(*) AS n, sum(b) AS t, count(b) AS m FROM u GROUP BY window(ts, '15 minutes')
SELECT (window_start - INTERVAL '1' MILLISECOND) AS w, (window_end - INTERVAL '1' MILLISECOND) AS e, sum AS s, count AS n, (avg_sum / nullif(avg_count, 0)) AS v FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, sum(sum) AS sum, sum(count) AS count, sum(avg_sum) AS avg_sum, sum(avg_count) AS avg_count FROM (SELECT e AS time_0, s AS sum, n AS count, CAST(t AS DOUBLE) AS avg_sum, m AS avg_count FROM in0) AS joined GROUP BY window(time_0, '3600000 milliseconds', '3600000 milliseconds', '1 milliseconds')) AS groups
-- shared: a coarser window by the starts, which end it later
SELECT window.end AS e, min(s) AS m FROM u GROUP BY window(ts, '1 hour')
SELECT window.start AS w, min(s) AS m FROM u GROUP BY window(ts, '20 minutes')
SELECT window_end AS e, min AS m FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, min(min) AS min FROM (SELECT w AS time_0, m AS min FROM in0) AS joined GROUP BY window(time_0, '3600000 milliseconds', '3600000 milliseconds', '0 milliseconds')) AS groups
-- shared: fewer keys, and a filter on one that is left out
SELECT window.end AS e, b, count(*) AS n FROM u WHERE a = 3 GROUP BY window(ts, '1 hour'), b
SELECT window.end AS e, a, b, s, count(*) AS n FROM u GROUP BY window(ts, '1 hour'), a, b, s
SELECT (window_end - INTERVAL '1' MILLISECOND) AS e, b, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, key_0 AS b, sum(count) AS count FROM (SELECT e AS time_0, b AS key_0, n AS count FROM in0 WHERE a = 3) AS joined GROUP BY window(time_0, '3600000 milliseconds', '3600000 milliseconds', '1 milliseconds'), key_0) AS groups
-- shared: a function of a key
SELECT window.end AS e, upper(s) AS t, max(a) AS m FROM u GROUP BY window(ts, '1 hour'), upper(s)
SELECT window.end AS e, s, max(a) AS m FROM u GROUP BY window(ts, '1 hour'), s
SELECT (window_end - INTERVAL '1' MILLISECOND) AS e, key AS t, max AS m FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, key_0 AS key, max(max) AS max FROM (SELECT e AS time_0, upper(s) AS key_0, m AS max FROM in0) AS joined GROUP BY window(time_0, '3600000 milliseconds', '3600000 milliseconds', '1 milliseconds'), key_0) AS groups
-- shared: hopping windows of tumbling ones
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '1 hour', '30 minutes')
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '10 minutes')
SELECT (window_end - INTERVAL '1' MILLISECOND) AS e, count AS n FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, sum(count) AS count FROM (SELECT e AS time_0, n AS count FROM in0) AS joined GROUP BY window(time_0, '3600000 milliseconds', '1800000 milliseconds', '1 milliseconds')) AS groups
-- shared: distinct values of fewer columns
SELECT DISTINCT window(ts, '1 hour').end AS e, a FROM u
SELECT DISTINCT window(ts, '30 minutes').end AS e, a, b FROM u
SELECT (window_end - INTERVAL '1' MILLISECOND) AS e, a FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, key_0 AS a FROM (SELECT e AS time_0, a AS key_0 FROM in0) AS joined GROUP BY window(time_0, '3600000 milliseconds', '3600000 milliseconds', '1 milliseconds'), key_0) AS groups
-- shared: a join within a shorter time
SELECT x.a, x.ts FROM u x JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '30' MINUTE AND x.ts
SELECT x.ts, y.ts AS t, y.b, x.a FROM u x JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts
SELECT a, ts FROM in0 WHERE t >= ts - INTERVAL '30' MINUTE
-- shared: a join whose sides are swapped, and filtered further
SELECT y.b FROM v y JOIN u x ON y.a = x.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts WHERE x.a > 5 AND y.b = 2
SELECT x.a, y.b FROM u x JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts
SELECT b FROM in0 WHERE b = 2 AND a > 5
-- shared: an outer join with a filter on the side that stays
SELECT x.b, y.b AS c FROM u x LEFT JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts WHERE x.b > 1
SELECT x.b, y.b AS c FROM u x LEFT JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts
SELECT b, c FROM in0 WHERE b > 1
-- alone: a wider filter
SELECT a FROM u WHERE a > 5
SELECT a FROM u WHERE a > 10
-- alone: a bound that belongs to one filter only
SELECT a FROM u WHERE a >= 5
SELECT a FROM u WHERE a > 5
-- alone: NULL satisfies no comparison
SELECT a FROM u
SELECT a FROM u WHERE a > 5 OR a <= 5
-- alone: the filtered column is not offered
SELECT b FROM u WHERE a > 10
SELECT b FROM u WHERE a > 5
-- alone: a column is not offered
SELECT a, b FROM u
SELECT a, ts FROM u
-- alone: numbers as texts have another order
SELECT s FROM u WHERE s > '10'
SELECT s FROM u WHERE s > '5'
-- alone: other numbers that are the same as fractions
SELECT d FROM u WHERE d >= 0.1000000000000000000001
SELECT d FROM u WHERE d > 0.1
-- alone: a text that is no time in full
SELECT ts FROM u WHERE ts > '2014'
SELECT ts FROM u WHERE ts > '2013'
-- alone: another stream
SELECT a FROM u
SELECT a FROM v
-- alone: an expression of the other query may fail
SELECT a, b FROM u
SELECT a, b, a * b AS p FROM u
-- alone: a condition of the other query may fail
SELECT a, b, s FROM u WHERE a > 1 AND b > 0 AND 10 / b < 2
SELECT a, b, s FROM u WHERE CAST(s AS INT) < 2 OR a > 1
-- alone: windows that overlap count rows twice
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '1 hour')
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '30 minutes', '15 minutes')
-- alone: windows that do not divide
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '1 hour')
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '25 minutes')
-- alone: windows with another offset
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '1 hour')
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '30 minutes', '30 minutes', '10 minutes')
-- alone: a slide that windows do not divide
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '1 hour', '15 minutes')
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '30 minutes')
-- alone: a finer window
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '30 minutes')
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '1 hour')
-- alone: sessions of fewer keys
SELECT session_window.end AS e, count(*) AS n FROM u GROUP BY session_window(ts, '5 minutes')
SELECT session_window.end AS e, a, count(*) AS n FROM u GROUP BY session_window(ts, '5 minutes'), a
-- alone: an average does not divide
SELECT window.end AS e, avg(a) AS v FROM u GROUP BY window(ts, '1 hour')
SELECT window.end AS e, avg(a) AS v, count(*) AS n FROM u GROUP BY window(ts, '30 minutes')
-- alone: a count of all rows is no count of values
SELECT window.end AS e, avg(a) AS v FROM u GROUP BY window(ts, '1 hour')
SELECT window.end AS e, sum(a) AS s, count(*) AS n FROM u GROUP BY window(ts, '30 minutes')
-- alone: a sum as fractions rounds where that of long numbers does not
SELECT window.end AS e, avg(k) AS v FROM u GROUP BY window(ts, '1 hour')
SELECT window.end AS e, sum(k) AS s, count(k) AS n FROM u GROUP BY window(ts, '30 minutes')
-- alone: groups are missing
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '1 hour')
SELECT window.end AS e, a, count(*) AS n FROM u GROUP BY window(ts, '1 hour'), a HAVING count(*) > 3
-- alone: rows of a group are filtered
SELECT window.end AS e, a, count(*) AS n FROM u WHERE b > 3 GROUP BY window(ts, '1 hour'), a
SELECT window.end AS e, a, count(*) AS n FROM u GROUP BY window(ts, '1 hour'), a
-- alone: zeros of both signs are one key
SELECT window.end AS e, d, count(*) AS n FROM u WHERE CAST(d AS STRING) = '-0.0' GROUP BY window(ts, '1 hour'), d
SELECT window.end AS e, d, count(*) AS n FROM u GROUP BY window(ts, '1 hour'), d
-- alone: a function of a key that is a fraction
SELECT window.end AS e, CAST(d AS STRING) AS t, count(*) AS n FROM u GROUP BY window(ts, '1 hour'), CAST(d AS STRING)
SELECT window.end AS e, d, count(*) AS n FROM u GROUP BY window(ts, '1 hour'), d
-- alone: neither end of the window is offered
SELECT window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '1 hour')
SELECT a, count(*) AS n FROM u GROUP BY window(ts, '30 minutes'), a
-- alone: an outer join of another kind
SELECT x.b, y.b AS c FROM u x LEFT JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts
SELECT x.b, y.b AS c FROM u x JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts
-- alone: rows without a partner would get one
SELECT x.b, y.b AS c FROM u x LEFT JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '30' MINUTE AND x.ts
SELECT x.b, y.b AS c, x.ts, y.ts AS t FROM u x LEFT JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts
-- alone: the side without partners is filtered
SELECT x.b, y.b AS c FROM u x LEFT JOIN v y ON x.a = y.a AND y.b > 3 AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts
SELECT x.b, y.b AS c FROM u x LEFT JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts
-- alone: a join within a longer time
SELECT x.a, x.ts FROM u x JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '2' HOUR AND x.ts
SELECT x.ts, y.ts AS t, y.b, x.a FROM u x JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts
-- alone: an equality of other columns
SELECT x.b, y.b AS c FROM u x JOIN v y ON x.b = y.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts
SELECT x.b, y.b AS c FROM u x JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts
-- shared: windows that begin later, over rows that are later
SELECT window.end AS e, count(*) AS n FROM u WHERE ts >= TIMESTAMP '2013-01-01 00:00:05' GROUP BY window(ts, '1 hour') HAVING window.start >= TIMESTAMP '2013-01-01 00:00:05'
SELECT window.start AS w, window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '1 hour')
SELECT e, n FROM in0 WHERE w >= CAST('2013-01-01 00:00:05' AS TIMESTAMP)
-- alone: windows that begin earlier than the rows that count
SELECT window.end AS e, count(*) AS n FROM u WHERE ts >= TIMESTAMP '2013-01-01 00:00:05' GROUP BY window(ts, '1 hour') HAVING window.start >= TIMESTAMP '2013-01-01 00:00:04'
SELECT window.start AS w, window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '1 hour')
-- alone: windows that end later than the rows that count
SELECT window.end AS e, count(*) AS n FROM u WHERE ts <= TIMESTAMP '2013-01-01 00:00:05' GROUP BY window(ts, '1 hour') HAVING window.start <= TIMESTAMP '2013-01-01 00:00:05'
SELECT window.start AS w, window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '1 hour')
-- shared: an average of fractions by their sum
SELECT window.start AS w, avg(d) AS m FROM u GROUP BY window(ts, '1 hour')
SELECT window.end AS e, sum(d) AS t, count(d) AS n FROM u GROUP BY window(ts, '15 minutes')
SELECT (window_start - INTERVAL '1' MILLISECOND) AS w, (avg_sum / nullif(avg_count, 0)) AS m FROM (SELECT `window`.start AS window_start, `window`.`end` AS window_end, sum(avg_sum) AS avg_sum, sum(avg_count) AS avg_count FROM (SELECT e AS time_0, t AS avg_sum, n AS avg_count FROM in0) AS joined GROUP BY window(time_0, '3600000 milliseconds', '3600000 milliseconds', '1 milliseconds')) AS groups
-- alone: an equality that the offered rows have only among them
SELECT a FROM u WHERE a = a
SELECT a, b FROM u WHERE a = b
-- alone: a quotient that the query computes of some rows only
SELECT a, 100 / b AS q FROM u WHERE b > 0
SELECT a, b, 100 / b AS q FROM u
-- alone: a quotient behind a condition
SELECT CASE WHEN b <> 0 THEN 100 / b END AS q FROM u
SELECT b, 100 / b AS q FROM u
-- alone: a sum of quotients of some rows
SELECT window.end AS e, sum(100 / b) AS q FROM u WHERE a > 5 GROUP BY window(ts, '1 hour'), a
SELECT window.end AS e, a, sum(100 / b) AS q FROM u GROUP BY window(ts, '1 hour'), a
