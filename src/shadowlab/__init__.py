"""Runs the lab: starts, breaks and heals a cluster on one machine. It is above the relay and uses it."""
