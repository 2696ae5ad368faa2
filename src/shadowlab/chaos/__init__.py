"""Chaos: mail without a pause, one fault after the other on one node at a time, and a verdict."""
