-- A condition on one side of an equality filters the other side too.
SELECT a.id, a.category, b.price FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 20 SECONDS
WHERE mod(a.id, 4) = 0 AND b.price > a.initial_bid
-- duckdb
SELECT a.id, a.category, b.price FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 20 SECOND
WHERE a.id % 4 = 0 AND b.price > a.initial_bid
