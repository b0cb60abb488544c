-- Aggregates of truth, bits and extremes, and how many different values there are.
SELECT window.start AS s, host, bool_and(healthy) AS always, bool_or(healthy) AS ever, bit_and(memory_mb) AS all_bits, bit_or(memory_mb) AS any_bits,
       bit_xor(memory_mb) AS odd_bits, max_by(memory_mb, disk_gb) AS of_fullest, min_by(memory_mb, disk_gb) AS of_emptiest, count_if(note = '') AS empty_notes,
       approx_count_distinct(healthy) AS states, try_sum(memory_mb) AS total
FROM metrics GROUP BY window(ts, '20 minutes'), host
-- duckdb
SELECT time_bucket(INTERVAL 20 MINUTE, ts) AS s, host, bool_and(healthy), bool_or(healthy), bit_and(memory_mb), bit_or(memory_mb),
       bit_xor(memory_mb), arg_max(memory_mb, disk_gb), arg_min(memory_mb, disk_gb), count_if(note = ''),
       count(DISTINCT healthy), sum(memory_mb)
FROM metrics GROUP BY s, host
