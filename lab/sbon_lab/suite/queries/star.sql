-- All columns of a stream, from each of its sources.
SELECT * FROM metrics
