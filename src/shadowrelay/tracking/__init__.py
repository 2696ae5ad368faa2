"""Writes the message tracking log: its format, and the writer that drains the outbox into files."""
