"""Safety Net: how long settled messages are kept, and how they are resubmitted."""
