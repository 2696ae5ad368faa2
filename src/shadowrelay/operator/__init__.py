"""Does what an operator may ask for messages and members, one module per verb."""
