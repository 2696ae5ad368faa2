"""What members say to each other of messages, and what follows from their answers."""
