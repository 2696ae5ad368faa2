"""Ownership: which member owns a message, and what makes another member its owner."""
