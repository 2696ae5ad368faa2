"""A whole boundary in one process, on a virtual clock: the production scripts under faults."""
