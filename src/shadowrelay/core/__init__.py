"""What is decided: pure functions of a ledger, a clock reading and an input."""
