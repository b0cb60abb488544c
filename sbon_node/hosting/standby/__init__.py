"""Operators and sources that another node keeps, too: stored there before any row is shown, and continued there if need be."""
