"""Delivery: the queue, attempts at a next hop, what becomes of each recipient, and reports (DSNs)."""
