"""Makes the helper modules of this directory importable from every test."""
