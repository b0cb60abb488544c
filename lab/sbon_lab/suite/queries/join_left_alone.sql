-- What has no partner: an anti-join by a left join.
SELECT a.id, a.ts, a.seller FROM auction a LEFT JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS AND b.price > 100000
WHERE b.auction IS NULL
