"""Operators that move between two Spark engines while rows arrive."""
