-- Groups of equal event times: all hosts tell theirs at once.
SELECT ts, count(*) AS hosts, round(avg(memory_mb), 3) AS mean FROM metrics GROUP BY ts
