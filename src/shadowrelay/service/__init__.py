"""Composes a node, or a mailbox service: the only place that constructs adapters, and runs the stages.

It imports nothing: a mailbox service starts without what only a node needs.
"""
