-- Texts with odd characters as keys of a join; the empty one meets the empty one.
SELECT a.ts, a.host, b.host AS other, a.note FROM metrics a JOIN metrics b
ON a.note = b.note AND b.ts BETWEEN a.ts - INTERVAL 30 SECONDS AND a.ts + INTERVAL 30 SECONDS WHERE a.host = 'ewr-1' AND b.host = 'lga-2'
