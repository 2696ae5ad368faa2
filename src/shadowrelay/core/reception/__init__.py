"""A message comes in: its route, its second copy, and the holder that takes it."""
