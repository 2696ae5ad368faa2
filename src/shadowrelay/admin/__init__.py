"""The HTTP API of a node, its metrics, and the client of both."""
