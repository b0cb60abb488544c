-- A join of a stream with its own daily aggregate: flights twice as late as their airport's average that day.
SELECT f.ts, f.carrier, f.flight, f.origin, f.dep_delay, d.mean
FROM flights f JOIN (SELECT date_trunc('day', ts) AS that_day, origin, avg(dep_delay) AS mean FROM flights GROUP BY date_trunc('day', ts), origin) d
ON f.origin = d.origin AND date_trunc('day', f.ts) = d.that_day AND f.dep_delay > 60 AND f.dep_delay > 2 * d.mean
