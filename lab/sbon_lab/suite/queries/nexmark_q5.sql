-- NEXMark query 5, hot items: auctions with the most bids in ten seconds, every two seconds.
SELECT bids.auction, bids.num, bids.starttime
FROM (SELECT auction, count(*) AS num, window.start AS starttime, window.end AS endtime
      FROM bid GROUP BY window(ts, '10 seconds', '2 seconds'), auction) AS bids
JOIN (SELECT max(num) AS maxn, starttime, endtime
      FROM (SELECT auction, count(*) AS num, window.start AS starttime, window.end AS endtime
            FROM bid GROUP BY window(ts, '10 seconds', '2 seconds'), auction) AS counted
      GROUP BY starttime, endtime) AS most
ON bids.starttime = most.starttime AND bids.endtime = most.endtime AND bids.num >= most.maxn
-- duckdb
WITH counted AS (
  SELECT auction, count(*) AS num, time_bucket(INTERVAL 2 SECOND, ts) - i * INTERVAL 2 SECOND AS starttime FROM bid, range(5) AS r(i) GROUP BY ALL)
SELECT auction, num, starttime FROM counted WHERE num = (SELECT max(num) FROM counted AS c WHERE c.starttime = counted.starttime)
