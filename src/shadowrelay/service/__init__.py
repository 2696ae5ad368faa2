"""Composes a node: the only place that constructs adapters, and runs the stages."""
