"""The promise, broken in every way that one machine allows: each proof is a command of ``scripts/prove``."""
