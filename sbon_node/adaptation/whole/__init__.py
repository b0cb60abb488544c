"""Re-placement of whole queries that this node leads."""
