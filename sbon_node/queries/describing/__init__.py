"""Descriptions of queries for users: found, asked for at their hosts, summarised."""
