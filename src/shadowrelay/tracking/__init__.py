"""The message tracking log: format, and the writer that drains the outbox into files."""
