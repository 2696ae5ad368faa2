"""The holder's stages: holding copies, heartbeat, promotion."""
