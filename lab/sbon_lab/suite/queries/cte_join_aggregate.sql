-- A common table expression, a join and an aggregate: what sellers of each state take in a minute.
WITH sold AS (SELECT a.ts, a.seller, b.price FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 15 SECONDS),
     placed AS (SELECT s.ts, p.state, s.price FROM sold s JOIN person p ON s.seller = p.id AND p.ts BETWEEN s.ts - INTERVAL 2 MINUTES AND s.ts)
SELECT window.start AS s, state, sum(price) AS total, count(*) AS bids FROM placed GROUP BY window(ts, '1 minute'), state
-- duckdb
WITH sold AS (SELECT a.ts, a.seller, b.price FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 15 SECOND),
     placed AS (SELECT s.ts, p.state, s.price FROM sold s JOIN person p ON s.seller = p.id AND p.ts BETWEEN s.ts - INTERVAL 2 MINUTE AND s.ts)
SELECT time_bucket(INTERVAL 1 MINUTE, ts) AS s, state, sum(price), count(*) FROM placed GROUP BY s, state
