"""The mail relay that keeps two copies of every message it acknowledged."""
