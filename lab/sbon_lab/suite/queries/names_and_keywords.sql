-- Names in any case, in backticks, and keywords as names; comments anywhere.
SELECT F.ORIGIN AS `from`, f.`dest` AS `to`, f.Carrier /* who */ AS `select`, -- and then
       f.distance `order`, 'literal -- no comment' AS note_1, "double quoted" AS note_2
FROM `flights` AS f
WHERE f.DISTANCE > 2400
-- duckdb
SELECT origin, dest, carrier, distance, 'literal -- no comment', 'double quoted'
FROM flights
WHERE distance > 2400
