"""This node's machine: its resources, their reservation, and its load."""
