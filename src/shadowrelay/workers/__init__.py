"""The processes of a node: the supervisor, its line to each worker, and the admin address of them all."""
