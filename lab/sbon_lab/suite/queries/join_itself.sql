-- A join of a stream with itself: machines that leave again within four hours; a missing key matches no row.
SELECT a.tailnum, a.ts AS one, b.ts AS other, a.origin, b.dest
FROM flights a JOIN flights b ON a.tailnum = b.tailnum AND b.ts BETWEEN a.ts + INTERVAL 1 MINUTE AND a.ts + INTERVAL 4 HOURS
