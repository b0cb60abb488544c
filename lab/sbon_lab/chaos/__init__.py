"""Faults of real nodes under running queries: their schedule, the queries, and the comparison of rows."""
