-- A join by the hour, without BETWEEN: both times cut to it.
SELECT f.ts, f.tailnum, w.pressure FROM flights f, weather w
WHERE f.origin = w.origin AND date_trunc('hour', f.ts) = date_trunc('hour', w.ts) AND f.carrier = 'US'
