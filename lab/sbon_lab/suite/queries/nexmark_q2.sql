-- NEXMark query 2, selection: bids for some auctions.
SELECT auction, price FROM bid WHERE mod(auction, 123) = 0
-- duckdb
SELECT auction, price FROM bid WHERE auction % 123 = 0
