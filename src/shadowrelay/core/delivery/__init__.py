"""Delivery of a message: when it is tried, what settles its recipients, and how long it is kept."""
