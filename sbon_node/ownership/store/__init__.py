"""Registers on three nodes: acceptors that keep them on disk, and the client that changes them (docs/design.md, section 10)."""
