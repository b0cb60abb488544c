-- NEXMark query 1, currency conversion: each price in euros.
SELECT auction, bidder, 0.908 * price AS price, ts, extra FROM bid
