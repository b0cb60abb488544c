"""The demo's queries in Spark's SQL, and in DuckDB's where it differs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """A query of the demo; ``title`` is shown above it."""

    name: str
    title: str
    sql: str
    reference: str = ""

    @property
    def duckdb(self) -> str:
        return self.reference or self.sql


QUERIES = (
    DemoQuery(
        "late",
        "A filter: flights that left three hours late, or later",
        """\
SELECT ts, carrier, flight, origin, dest, dep_delay,
       CAST(floor(distance * 60 / air_time) AS INT) AS mph,
       dep_delay - arr_delay AS made_up
FROM flights
WHERE dep_delay >= 180 AND air_time IS NOT NULL AND arr_delay IS NOT NULL""",
    ),
    DemoQuery(
        "carriers",
        "A window: how late each carrier was each day, over all airports",
        """\
SELECT window.start AS day, carrier,
       count(*) AS flights, avg(dep_delay) AS delay, max(dep_delay) AS longest
FROM flights
WHERE dep_delay IS NOT NULL
GROUP BY window(ts, '1 day'), carrier""",
        """\
SELECT date_trunc('day', ts) AS day, carrier,
       count(*) AS flights, avg(dep_delay) AS delay, max(dep_delay) AS longest
FROM flights
WHERE dep_delay IS NOT NULL
GROUP BY ALL""",
    ),
    DemoQuery(
        "weather",
        "A join: flights with the weather of their hour, each day at each airport",
        """\
SELECT window.start AS day, f.origin, count(*) AS flights,
       avg(f.dep_delay) AS delay,
       max(w.wind_speed) AS wind, min(w.visib) AS sight
FROM flights f JOIN weather w
  ON f.origin = w.origin AND date_trunc('hour', f.ts) = w.ts
WHERE f.dep_delay IS NOT NULL
GROUP BY window(w.ts, '1 day'), f.origin""",
        """\
SELECT date_trunc('day', w.ts) AS day, f.origin, count(*) AS flights,
       avg(f.dep_delay) AS delay,
       max(w.wind_speed) AS wind, min(w.visib) AS sight
FROM flights f JOIN weather w
  ON f.origin = w.origin AND date_trunc('hour', f.ts) = w.ts
WHERE f.dep_delay IS NOT NULL
GROUP BY ALL""",
    ),
)
