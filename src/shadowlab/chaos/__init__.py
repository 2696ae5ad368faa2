"""Runs chaos: mail without a pause, one fault after the other, and a verdict."""
