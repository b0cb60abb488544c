-- Sessions counted by the quarter of an hour in which they end.
SELECT window.start AS s, count(*) AS sessions, max(n) AS longest
FROM (SELECT session_window.end AS ended, host, count(*) AS n FROM metrics GROUP BY session_window(ts, '5 minutes'), host) AS sessions
GROUP BY window(ended, '15 minutes')
-- duckdb
WITH marked AS (
  SELECT *, ts - lag(ts) OVER (PARTITION BY host ORDER BY ts) > INTERVAL 5 MINUTE AS fresh FROM metrics),
numbered AS (SELECT *, count(CASE WHEN fresh THEN 1 END) OVER (PARTITION BY host ORDER BY ts) AS session FROM marked),
sessions AS (SELECT max(ts) + INTERVAL 5 MINUTE AS ended, count(*) AS n FROM numbered GROUP BY host, session)
SELECT time_bucket(INTERVAL 15 MINUTE, ended) AS s, count(*), max(n) FROM sessions GROUP BY s
