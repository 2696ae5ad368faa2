"""Runs a small mailbox server for labs."""
