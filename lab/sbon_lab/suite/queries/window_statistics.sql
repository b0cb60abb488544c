-- Aggregates of spread, shape and relation.
SELECT window.start AS s, stddev(cpu) AS deviation, stddev_pop(cpu) AS deviation_of_all, variance(memory_mb) AS var, var_pop(memory_mb) AS var_of_all,
       corr(cpu, memory_mb) AS relation, covar_pop(cpu, memory_mb) AS together, covar_samp(cpu, memory_mb) AS together_sampled,
       skewness(memory_mb) AS skew, kurtosis(memory_mb) AS tail, regr_slope(cpu, memory_mb) AS slope, mean(cpu) AS middle
FROM metrics GROUP BY window(ts, '10 minutes')
-- duckdb
SELECT time_bucket(INTERVAL 10 MINUTE, ts) AS s, stddev(cpu), stddev_pop(cpu), variance(memory_mb), var_pop(memory_mb),
       corr(cpu, memory_mb), covar_pop(cpu, memory_mb), covar_samp(cpu, memory_mb),
       (avg(memory_mb ** 3) - 3 * avg(memory_mb) * var_pop(memory_mb) - avg(memory_mb) ** 3) / stddev_pop(memory_mb) ** 3,
       kurtosis_pop(memory_mb), regr_slope(cpu, memory_mb), avg(cpu)
FROM metrics GROUP BY s
