"""What a settled message leads to: events for every member that may hold a copy, and reports (DSNs)."""
