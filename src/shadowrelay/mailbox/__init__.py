"""A small mailbox server for labs."""
