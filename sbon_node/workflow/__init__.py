"""Shared by workflows over several nodes: context, local store, retries, rejoining (docs/design.md, section 10)."""
