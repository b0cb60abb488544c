"""Replicated sources: another node stores each row before it is confirmed, and goes on with the source if its node is lost."""
