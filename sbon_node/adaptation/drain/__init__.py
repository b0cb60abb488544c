"""Draining: a node moves its operators away, and leaves."""
