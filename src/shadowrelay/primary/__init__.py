"""The owner's stages: intake, shadowing, queue, delivery, discards, DSNs."""
