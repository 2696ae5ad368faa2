"""Start, break and heal a cluster on one machine."""
