-- LIKE with its escapes, RLIKE, IN and BETWEEN on odd texts.
SELECT ts, host, note FROM metrics
WHERE note LIKE '%\\%%' OR note RLIKE '^[a-z]+ *$' OR note IN ('NULL', '1e3', '--', 'it\'s') AND host BETWEEN 'ewr-2' AND 'jfk-3'
-- duckdb
SELECT ts, host, note FROM metrics
WHERE note LIKE '%\%%' ESCAPE '\' OR regexp_matches(note, '^[a-z]+ *$')
   OR note IN ('NULL', '1e3', '--', 'it''s') AND host BETWEEN 'ewr-2' AND 'jfk-3'
