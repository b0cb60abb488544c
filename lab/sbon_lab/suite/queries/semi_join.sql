-- LEFT SEMI JOIN, of persons who sell something soon.
SELECT p.id, p.name, p.city FROM person p LEFT SEMI JOIN auction a ON p.id = a.seller AND a.ts BETWEEN p.ts AND p.ts + INTERVAL 30 SECONDS
-- duckdb
SELECT p.id, p.name, p.city FROM person p SEMI JOIN auction a ON p.id = a.seller AND a.ts BETWEEN p.ts AND p.ts + INTERVAL 30 SECOND
