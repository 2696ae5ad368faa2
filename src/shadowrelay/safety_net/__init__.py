"""Settled messages, kept for a while: expiry."""
