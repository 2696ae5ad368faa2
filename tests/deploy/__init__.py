"""What stands in deploy/, tried as far as a machine without a cluster can."""
