"""Who is there, and how far away: membership, the cost space, and what a node knows of the others."""
