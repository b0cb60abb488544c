-- Three aggregates, one above the other, the last two over the same windows.
SELECT window.start AS s, max(mean) AS worst_mean
FROM (SELECT window, site, avg(load) AS mean
      FROM (SELECT window, split_part(host, '-', 1) AS site, host, max(cpu) AS load FROM metrics GROUP BY window(ts, '5 minutes'), host, split_part(host, '-', 1)) AS of_host
      GROUP BY window, site) AS of_site
GROUP BY window
-- duckdb
SELECT s, max(mean)
FROM (SELECT s, site, avg(load) AS mean
      FROM (SELECT time_bucket(INTERVAL 5 MINUTE, ts) AS s, split_part(host, '-', 1) AS site, host, max(cpu) AS load FROM metrics GROUP BY ALL)
      GROUP BY s, site)
GROUP BY s
