-- IN: bids of those who also sell at about that time.
SELECT b.auction, b.bidder, b.price, b.ts FROM bid b
WHERE b.bidder IN (SELECT a.seller FROM auction a WHERE a.ts BETWEEN b.ts - INTERVAL 2 SECONDS AND b.ts + INTERVAL 2 SECONDS AND a.category > 11) AND b.price < 50000
