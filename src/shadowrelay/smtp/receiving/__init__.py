"""A Receive connector and its sessions: what clients say, and what the stages behind it answer."""
