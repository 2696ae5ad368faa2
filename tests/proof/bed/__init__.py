"""The test bed of the disk proofs: nodes that start fast, a next hop, clients, faults, and the verdict."""
