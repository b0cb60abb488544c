"""Operators at this node."""
