-- NOT EXISTS is not supported; a LEFT JOIN says the same.
SELECT a.id FROM auction a WHERE NOT EXISTS (SELECT 1 FROM bid b WHERE b.auction = a.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 MINUTE)
-- refused: unsupported-subquery
