"""From a SQL text to a plan, in a process of its own."""
