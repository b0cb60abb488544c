"""Control: workflows of a node over the network: catalogue, submission, hosting, records (DESIGN, section 9)."""
