"""Who owns a message: one member at a time, and what makes it another one."""
