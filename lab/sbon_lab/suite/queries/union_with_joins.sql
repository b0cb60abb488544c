-- A union of a plain stream and of a join.
SELECT ts, id AS number, name AS what FROM person
UNION ALL
SELECT a.ts, a.id, concat(p.name, ': ', a.item_name) FROM auction a JOIN person p ON a.seller = p.id AND p.ts BETWEEN a.ts - INTERVAL 20 SECONDS AND a.ts
-- duckdb
SELECT ts, id AS number, name AS what FROM person
UNION ALL
SELECT a.ts, a.id, p.name || ': ' || a.item_name FROM auction a JOIN person p ON a.seller = p.id AND p.ts BETWEEN a.ts - INTERVAL 20 SECOND AND a.ts
