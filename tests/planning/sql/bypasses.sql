-- Fragments over in0 that a hostile peer might send. Each block: "-- expect: code", then the SQL up to a line of "--".
-- expect: forbidden-word
SELECT TRANSFORM(a) USING 'cat /etc/passwd' FROM in0
--
-- expect: forbidden-word
SELECT TRANSFORM(a) USING 'cat' AS (b string) FROM in0
--
-- expect: forbidden-word
SELECT transform (a, b) ROW FORMAT DELIMITED USING 'sh' AS x FROM in0
--
-- expect: forbidden-word
MAP a USING 'sh -c id' FROM in0
--
-- expect: forbidden-word
SELECT MAP a USING 'id' FROM in0
--
-- expect: forbidden-word
FROM in0 REDUCE a USING 'id'
--
-- expect: forbidden-word
FROM in0 SELECT TRANSFORM(a) USING 'id'
--
-- expect: forbidden-path
SELECT * FROM text.`/etc/passwd`
--
-- expect: forbidden-path
SELECT * FROM `text`.`/etc/passwd`
--
-- expect: forbidden-path
SELECT * FROM parquet.`/tmp/x`
--
-- expect: forbidden-path
SELECT * FROM json.`http://169.254.169.254/`
--
-- expect: forbidden-path
SELECT * FROM `in0`.`x`
--
-- expect: forbidden-path
SELECT * FROM default.in0
--
-- expect: forbidden-path
SELECT * FROM spark_catalog.default.in0
--
-- expect: forbidden-path
SELECT * FROM system.information_schema.tables
--
-- expect: forbidden-relation
SELECT * FROM in1
--
-- expect: forbidden-relation
SELECT * FROM IN0x
--
-- expect: forbidden-relation
SELECT * FROM `/etc/passwd`
--
-- expect: forbidden-relation
SELECT * FROM `in0 `
--
-- expect: forbidden-word
EXECUTE IMMEDIATE 'SELECT 1'
--
-- expect: forbidden-character
BEGIN SELECT 1; END
--
-- expect: forbidden-word
ADD JAR '/tmp/x.jar'
--
-- expect: forbidden-word
ADD FILE '/etc/passwd'
--
-- expect: not-a-select
LIST FILES
--
-- expect: forbidden-word
CREATE TABLE t AS SELECT * FROM in0
--
-- expect: forbidden-word
CREATE FUNCTION f AS 'x.Y' USING JAR '/tmp/x.jar'
--
-- expect: forbidden-word
CREATE TEMPORARY VIEW in0 AS SELECT 1
--
-- expect: forbidden-word
INSERT INTO t SELECT * FROM in0
--
-- expect: forbidden-word
INSERT OVERWRITE DIRECTORY '/tmp/x' SELECT * FROM in0
--
-- expect: forbidden-word
FROM in0 INSERT INTO t SELECT a
--
-- expect: forbidden-word
DROP TABLE t
--
-- expect: forbidden-word
DROP VIEW in0
--
-- expect: forbidden-word
SET spark.sql.ansi.enabled=false
--
-- expect: forbidden-word
SET VAR x = 1
--
-- expect: forbidden-word
DECLARE VARIABLE x INT
--
-- expect: forbidden-word
RESET
--
-- expect: forbidden-word
CACHE TABLE in0
--
-- expect: forbidden-word
REFRESH TABLE in0
--
-- expect: forbidden-word
LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE t
--
-- expect: forbidden-word
DESCRIBE EXTENDED in0
--
-- expect: forbidden-word
SHOW TABLES
--
-- expect: forbidden-word
USE other
--
-- expect: forbidden-word
CALL system.x()
--
-- expect: forbidden-word
EXPLAIN SELECT * FROM in0
--
-- expect: forbidden-word
TRUNCATE TABLE t
--
-- expect: forbidden-word
MERGE INTO t USING in0 ON true WHEN MATCHED THEN DELETE
--
-- expect: forbidden-word
UPDATE t SET a = 1
--
-- expect: forbidden-word
DELETE FROM t
--
-- expect: forbidden-character
SELECT a FROM in0; DROP TABLE t
--
-- expect: forbidden-character
SELECT a FROM in0;
--
-- expect: forbidden-comment
SELECT a FROM in0 /* ; */
--
-- expect: unsupported-hint
SELECT a /*+ x */ FROM in0
--
-- expect: unsupported-hint
SELECT /*+ REPARTITION(1000000) */ a FROM in0
--
-- expect: forbidden-comment
SELECT a -- b
 FROM in0
--
-- expect: forbidden-comment
SELECT a -- \
 FROM in0 UNION SELECT 1
--
-- expect: forbidden-comment
SELECT a FROM in0 -- x
--
-- expect: bad-sql
SELECT a, 'x\' FROM in0
--
-- expect: adjacent-strings
SELECT 'a'' FROM in0 --' FROM in0
--
-- expect: forbidden-string
SELECT "a" FROM in0
--
-- expect: forbidden-string
SELECT r'\' FROM in0
--
-- expect: forbidden-variable
SELECT '${system:user.home}' FROM in0
--
-- expect: forbidden-variable
SELECT ${env:HOME} FROM in0
--
-- expect: forbidden-variable
SELECT a FROM in0 WHERE '${spark.app.name}' = 'x'
--
-- expect: forbidden-function
SELECT java_method('java.lang.Runtime', 'getRuntime') FROM in0
--
-- expect: forbidden-function
SELECT reflect('java.lang.System', 'getenv') FROM in0
--
-- expect: forbidden-function
SELECT try_reflect('java.lang.System', 'exit', 1) FROM in0
--
-- expect: forbidden-function
SELECT JAVA_METHOD('a', 'b') FROM in0
--
-- expect: forbidden-function
SELECT `java_method`('a', 'b') FROM in0
--
-- expect: forbidden-function
SELECT `reflect`('a', 'b') FROM in0
--
-- expect: forbidden-function
SELECT builtin.reflect('a', 'b') FROM in0
--
-- expect: forbidden-function
SELECT system.builtin.reflect('a', 'b') FROM in0
--
-- expect: forbidden-function
SELECT session.upper(a) FROM in0
--
-- expect: forbidden-function
SELECT upper(reflect('a', 'b')) FROM in0
--
-- expect: forbidden-function
SELECT CASE WHEN a THEN reflect('a', 'b') END FROM in0
--
-- expect: forbidden-function
SELECT a FROM in0 WHERE b IN (1, reflect('a', 'b'))
--
-- expect: forbidden-function
SELECT a[reflect('a', 'b')] FROM in0
--
-- expect: forbidden-function
SELECT CAST(reflect('a', 'b') AS INT) FROM in0
--
-- expect: forbidden-function
SELECT TRIM(reflect('a', 'b') FROM a) FROM in0
--
-- expect: forbidden-function
SELECT EXTRACT(HOUR FROM reflect('a', 'b')) FROM in0
--
-- expect: forbidden-function
SELECT INTERVAL (reflect('a', 'b')) DAY FROM in0
--
-- expect: bad-sql
SELECT a LIKE 'x' ESCAPE reflect('a') FROM in0
--
-- expect: forbidden-function
SELECT timestampdiff(HOUR, reflect('a', 'b'), ts) FROM in0
--
-- expect: unsupported-subquery
SELECT a FROM in0 WHERE EXISTS (SELECT 1 FROM text.`/etc/passwd`)
--
-- expect: unsupported-subquery
SELECT (SELECT value FROM text.`/etc/passwd`) FROM in0
--
-- expect: forbidden-word
WITH in0 AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM in0
--
-- expect: forbidden-word
SELECT a FROM in0 UNION ALL SELECT value FROM text.`/etc/passwd`
--
-- expect: forbidden-word
SELECT a FROM in0 UNION ALL TABLE secrets
--
-- expect: forbidden-word
SELECT a FROM in0 EXCEPT VALUES (1)
--
-- expect: forbidden-sql
SELECT a FROM in0 JOIN in0 b
--
-- expect: forbidden-sql
SELECT a FROM in0, in0 b
--
-- expect: forbidden-word
SELECT a FROM in0 CROSS JOIN range(1000000000)
--
-- expect: forbidden-word
SELECT a FROM range(1000000000)
--
-- expect: forbidden-word
SELECT a FROM explode(array(1))
--
-- expect: forbidden-word
SELECT a FROM VALUES (1) AS in0(a)
--
-- expect: forbidden-word
SELECT explode(array(1, 2)) FROM in0
--
-- expect: forbidden-word
SELECT a FROM in0 LATERAL VIEW explode(array(1)) t AS b
--
-- expect: forbidden-word
SELECT a FROM in0 TABLESAMPLE (1 ROWS)
--
-- expect: forbidden-word
SELECT a FROM in0 PIVOT (max(a) FOR b IN (1))
--
-- expect: unsupported-clause
SELECT a FROM in0 VERSION AS OF 1
--
-- expect: unsupported-clause
SELECT a FROM in0 FOR SYSTEM_TIME AS OF '2020-01-01'
--
-- expect: forbidden-word
SELECT a FROM in0 WATERMARK ts DELAY OF INTERVAL 1 SECOND
--
-- expect: forbidden-word
SELECT a INTO t FROM in0
--
-- expect: forbidden-operator
SELECT a FROM in0 |> DROP a
--
-- expect: unsupported-table-function
SELECT a FROM IDENTIFIER('text.`/etc/passwd`')
--
-- expect: bad-sql
SELECT IDENTIFIER('reflect')('a', 'b') FROM in0
--
-- expect: forbidden-character
SELECT a FROM in0 WHERE @x = 1
--
-- expect: forbidden-variable
SELECT session.x FROM in0
--
-- expect: forbidden-character
SELECT a:b.c FROM in0
--
-- expect: forbidden-character
SELECT a::INT FROM in0
--
-- expect: forbidden-operator
SELECT transform(a, x -> reflect('a', 'b')) FROM in0
--
-- expect: forbidden-operator
SELECT aggregate(a, 0, (x, y) -> x) FROM in0
--
-- expect: unbounded-function
SELECT repeat('x', 100000000) FROM in0
--
-- expect: unbounded-function
SELECT repeat('x', 10 * 10) FROM in0
--
-- expect: unbounded-function
SELECT repeat('x', -1) FROM in0
--
-- expect: unbounded-function
SELECT replace(a, 'x', b) FROM in0
--
-- expect: unbounded-function
SELECT repeat(repeat(a, 100), 100) FROM in0
--
-- expect: unbounded-function
SELECT length(repeat(repeat(repeat('x', 100), 100), 100)) AS n FROM in0
--
-- expect: unbounded-function
SELECT a FROM in0 WHERE length(repeat(concat(a, a, a, a, a, a, a, a, a, a, a), 100)) > 1
--
-- expect: unbounded-function
SELECT repeat(b, 100) AS c FROM (SELECT repeat(a, 100) AS b FROM in0) AS s
--
-- expect: unbounded-function
SELECT repeat(b, 100) AS c FROM (SELECT * FROM (SELECT repeat(a, 100) AS b FROM in0) AS r) AS s
--
-- expect: unbounded-function
SELECT regexp_replace(regexp_replace(a, '', '0123456789012345678901234567890123456789'), '', '0123456789012345678901234567890123456789') AS b FROM in0
--
-- expect: unbounded-function
SELECT repeat(a, 100) AS a, repeat(a, 100) AS b, repeat(a, 100) AS c, repeat(a, 100) AS d, repeat(a, 100) AS e, repeat(a, 100) AS f, repeat(a, 100) AS g, repeat(a, 100) AS h, repeat(a, 100) AS i, repeat(a, 100) AS j, repeat(a, 100) AS k FROM in0
--
-- expect: unbounded-function
SELECT repeat(a || a || a || a || a || a || a || a || a || a || a, 100) AS b FROM in0
--
-- expect: unbounded-function
SELECT hex(hex(hex(hex(hex(hex(hex(a))))))) FROM in0
--
-- expect: unknown-function
SELECT from_json(a, 'x INT') FROM in0
--
-- expect: forbidden-function
SELECT xpath_string(a, '/a') FROM in0
--
-- expect: unsupported-aggregate
SELECT count(*) FROM in0
--
-- expect: forbidden-sql
SELECT DISTINCT a FROM in0
--
-- expect: forbidden-word
SELECT a FROM in0 LIMIT 1
--
-- expect: forbidden-word
SELECT a FROM in0 ORDER BY a
--
-- expect: forbidden-word
SELECT max(a) OVER () FROM in0
--
-- expect: unknown-function
SELECT STRUCT(a) FROM in0
--
-- expect: unsupported-expression
SELECT a AS (b, c) FROM in0
--
-- expect: unsupported-clause
SELECT AS STRUCT a FROM in0
--
-- expect: forbidden-word
SELECT * EXCEPT (a) FROM in0
--
-- expect: unsupported-expression
SELECT a COLLATE UNICODE FROM in0
--
-- expect: forbidden-character
SELECT CAST(a AS STRUCT<x: INT>) FROM in0
--
-- expect: unsupported-expression
SELECT a FROM in0 WHERE a = ANY (SELECT 1)
--
-- expect: bad-sql
SELECT a , FROM in0
--
-- expect: unsupported-no-from
SELECT
--
