"""What an operator may do to mail and members, one module a verb."""
