-- Missing values in comparisons, in logic of three values, in arithmetic and texts.
SELECT ts, host, cpu > 0.5e0 AS busy, NOT healthy AS ill, healthy AND cpu > 0.5e0 AS both, healthy OR cpu > 0.5e0 AS one_of, cpu + memory_mb AS total,
       healthy <=> NULL AS equally_null, note = NULL AS never, concat(note, 'x') AS glued, concat_ws('-', host, note) AS skipped,
       greatest(cpu, 0.5e0) AS most, coalesce(cpu, NULL) AS still, cpu IN (0.25e0, NULL) AS in_null, length(note) = 0 AS is_empty, isnull(note) AS is_missing,
       healthy IS TRUE AS truly, healthy IS NOT FALSE AS not_falsely, nullif(note, '') AS no_blank
FROM metrics
WHERE healthy IS NULL OR cpu IS NULL OR note IS NULL OR installed IS NULL
-- duckdb
SELECT ts, host, cpu > 0.5, NOT healthy, healthy AND cpu > 0.5, healthy OR cpu > 0.5, cpu + memory_mb,
       healthy IS NULL, note = NULL, note || 'x', concat_ws('-', host, note),
       greatest(cpu, 0.5), cpu, cpu IN (0.25, NULL), length(note) = 0, note IS NULL,
       healthy IS NOT DISTINCT FROM true, healthy IS DISTINCT FROM false, nullif(note, '')
FROM metrics
WHERE healthy IS NULL OR cpu IS NULL OR note IS NULL OR installed IS NULL
