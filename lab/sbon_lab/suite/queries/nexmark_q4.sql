-- NEXMark query 4, average price of a category, as the benchmark has it: one group for all time.
SELECT category, avg(final) AS price
FROM (SELECT max(b.price) AS final, a.category FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires
      GROUP BY a.id, a.category)
GROUP BY category
-- refused: aggregate-without-window
