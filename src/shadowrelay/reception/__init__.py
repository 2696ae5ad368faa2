"""Reception: who may send where, the second copy before the 250, and the header fields that are added."""
