"""Sources at this node, and what is known of their rows."""
