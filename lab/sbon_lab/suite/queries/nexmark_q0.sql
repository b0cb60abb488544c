-- NEXMark query 0, pass through: what the overlay itself costs.
SELECT auction, bidder, price, ts, extra FROM bid
