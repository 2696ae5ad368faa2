"""Filters (milters) that are asked about mail from senders. Only this room knows their protocol."""
