"""Serves the HTTP API and metrics of a node, and is their client."""
