-- Event times against literals, whose zone is UTC.
SELECT ts, origin, dest FROM flights
WHERE ts >= TIMESTAMP '2013-02-08 12:00:00' AND ts < TIMESTAMP '2013-02-09 00:00:00' + INTERVAL 30 MINUTES
  AND CAST(ts AS DATE) <> DATE '2013-02-09'
