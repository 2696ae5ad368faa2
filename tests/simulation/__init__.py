"""A whole boundary in one process, on a virtual clock: the production scripts under every fault we can name."""
