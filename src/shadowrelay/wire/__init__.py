"""Grammars: SMTP commands, replies, addresses and reports, parsed and formatted; no I/O."""
