"""Safety Net: settled messages are kept for a while, then expire."""
