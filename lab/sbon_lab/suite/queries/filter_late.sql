-- Conditions on numbers and texts at each source, with AND, OR and NOT.
SELECT ts, carrier, flight, dest, dep_delay
FROM flights
WHERE dep_delay >= 60 AND NOT (origin = 'EWR' AND carrier = 'UA') AND (dest = 'SFO' OR dest = 'LAX' OR distance < 500)
