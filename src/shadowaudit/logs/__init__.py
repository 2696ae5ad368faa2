"""Files: which there are, what they say of themselves, and their rows as arrays. The only reader of logs."""
