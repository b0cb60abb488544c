-- EXISTS: flights in an hour with strong wind or snow.
SELECT ts, carrier, flight, origin FROM flights f
WHERE dep_delay IS NULL AND EXISTS (SELECT 1 FROM weather w WHERE w.origin = f.origin AND w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts AND (w.wind_speed > 25 OR w.precip > 0.02))
