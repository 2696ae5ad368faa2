"""What the rows mean, and what follows: pure, without files, clocks or engines."""
