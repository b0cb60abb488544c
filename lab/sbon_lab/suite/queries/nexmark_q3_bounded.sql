-- NEXMark query 3, local item suggestion, of those who registered in the last two minutes.
SELECT p.name, p.city, p.state, a.id
FROM auction AS a JOIN person AS p ON a.seller = p.id AND p.ts BETWEEN a.ts - INTERVAL 2 MINUTES AND a.ts
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')
