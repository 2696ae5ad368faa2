"""The mail relay that keeps two copies of every message it acknowledged."""

__version__ = "0.2.0"
