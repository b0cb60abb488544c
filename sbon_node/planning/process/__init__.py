"""Planning in a process of its own: a hostile text may fill, stall or kill it without delaying a probe."""
