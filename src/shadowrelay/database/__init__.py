"""What is remembered: the transport database; all SQL of the project."""
