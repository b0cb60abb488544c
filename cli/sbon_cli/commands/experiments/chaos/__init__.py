"""Faults of a local cluster under running queries (``sbon bench chaos``)."""
