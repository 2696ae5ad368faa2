"""How it is spelt: SMTP text, parsed and formatted, no I/O."""
