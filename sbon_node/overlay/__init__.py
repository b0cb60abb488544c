"""Nodes that are there, and their distances: membership, the cost space, and what a node knows of the others."""
