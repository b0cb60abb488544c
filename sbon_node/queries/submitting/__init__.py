"""Submission of queries: planned, placed, shared with running ones, deployed."""
