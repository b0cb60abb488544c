"""Placement that goes on while queries run: each node moves its operators where they save network usage."""
