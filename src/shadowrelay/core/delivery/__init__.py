"""A message goes out: when it is tried, what settles it, and how long it is kept."""
