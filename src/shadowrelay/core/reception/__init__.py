"""Reception of a message: its route, its second copy, and the holder that takes the copy."""
