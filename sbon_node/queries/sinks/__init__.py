"""Sinks of running queries: followed, added, removed, moved to other nodes."""
