"""The lab: start, break and heal a cluster of nodes on one machine. It stands above the relay and uses it."""
