"""Mail goes out: the queue, an attempt at a next hop, what becomes of each recipient, and reports (DSNs)."""
