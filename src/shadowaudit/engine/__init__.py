"""Reads, merges and judges: on this machine, and as pure functions for Spark (``port`` is the seam)."""
