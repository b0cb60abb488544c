"""Queries on a local cluster whose operators move while rows arrive (``sbon bench migration``)."""
