"""Records of queries, and the work of their leaders."""
