-- Sessions of what is left after a filter at each source, with HAVING.
SELECT session_window.start AS began, bidder, count(*) AS bids, sum(price) AS total FROM bid WHERE price > 500000
GROUP BY session_window(ts, '8 seconds'), bidder HAVING count(*) > 2
-- duckdb
WITH marked AS (
  SELECT *, ts - lag(ts) OVER (PARTITION BY bidder ORDER BY ts) > INTERVAL 8 SECOND AS fresh FROM bid WHERE price > 500000),
numbered AS (SELECT *, count(CASE WHEN fresh THEN 1 END) OVER (PARTITION BY bidder ORDER BY ts) AS session FROM marked)
SELECT min(ts), bidder, count(*), sum(price) FROM numbered GROUP BY bidder, session HAVING count(*) > 2
