-- Sessions: a host's rows, until it says nothing for longer than five minutes.
SELECT session_window.start AS began, session_window.end AS ended, host, count(*) AS n, max(cpu) AS most FROM metrics GROUP BY session_window(ts, '5 minutes'), host
-- duckdb
WITH marked AS (
  SELECT *, ts - lag(ts) OVER (PARTITION BY host ORDER BY ts) > INTERVAL 5 MINUTE AS fresh FROM metrics),
numbered AS (SELECT *, count(CASE WHEN fresh THEN 1 END) OVER (PARTITION BY host ORDER BY ts) AS session FROM marked)
SELECT min(ts), max(ts) + INTERVAL 5 MINUTE, host, count(*), max(cpu) FROM numbered GROUP BY host, session
