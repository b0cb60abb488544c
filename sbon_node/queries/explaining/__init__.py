"""Explanations of plans and placements: hosts, reasons, alternatives and the latencies that decide."""
