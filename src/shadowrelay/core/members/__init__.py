"""What members say to each other about messages, and what follows from their answers."""
