"""Workflows of a node over the network: catalogue, submission, hosting, records (docs/design.md, section 10)."""
