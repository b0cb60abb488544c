-- A join of three streams: bids, their auctions and who sells there.
SELECT b.price, b.ts, a.item_name, a.category, p.name, p.state
FROM bid b JOIN auction a ON b.auction = a.id AND a.ts BETWEEN b.ts - INTERVAL 30 SECONDS AND b.ts
JOIN person p ON p.id = a.seller AND p.ts BETWEEN a.ts - INTERVAL 1 MINUTE AND a.ts
WHERE b.price > 10000 AND p.state <> 'WA'
