-- A filter that no row passes: an empty result, and an end.
SELECT ts, host, cpu FROM metrics WHERE cpu > 2.0 AND host LIKE 'ewr-%'
