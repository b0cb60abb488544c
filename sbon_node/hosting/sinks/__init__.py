"""Sinks at this node."""
