"""Replicated records: registers that compare-and-set changes through a majority of acceptors (docs/design.md, section 10)."""
