-- What other dialects write otherwise: arguments after keywords, elements of arrays, fields of structs, lists of ANY.
SELECT ts, substring(origin FROM 2 FOR 1) AS second, substring(dest FROM 2) AS rest, overlay(dest PLACING '-' FROM 2 FOR 1) AS laid,
array(distance, 2)[0] AS first, ARRAY[dest, origin][1] AS other, struct(origin, dest).dest AS field,
named_struct('far', distance > 1000, 'near', distance <= 1000).far AS far
FROM flights WHERE carrier = ANY(ARRAY('B6', 'VX')) AND distance = SOME (array(1069, 2475, 187))
-- duckdb
SELECT ts, substring(origin, 2, 1) AS second, substring(dest, 2) AS rest, dest[1] || '-' || dest[3:] AS laid,
distance AS first, origin AS other, dest AS field, distance > 1000 AS far
FROM flights WHERE carrier IN ('B6', 'VX') AND distance IN (1069, 2475, 187)
