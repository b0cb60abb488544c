"""Local optimizers over whole daemons in virtual time, beside placements that never move and an oracle that moves for free."""
