"""Spreads the work over an engine: Spark, or Sail which speaks the same protocol."""
