"""Fuzzing: everything that parses, fed with anything. Each target states its invariant in one sentence."""
