-- Queries inside of FROM, filtered again outside.
SELECT place, speed, speed * 1.609344e0 AS km_h
FROM (SELECT concat(origin, '-', dest) AS place, distance * 60e0 / air_time AS speed, carrier
      FROM (SELECT * FROM flights WHERE air_time IS NOT NULL) AS flown WHERE distance > 300) AS legs
WHERE speed < 350 AND carrier <> 'US'
