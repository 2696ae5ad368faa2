"""Stores what a node remembers in the transport database; holds all SQL of the project."""
