"""Owners: replicated registers of queries, their names, operators, sinks and sources; and the catalogue."""
