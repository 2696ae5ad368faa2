"""Realistic logs with known faults, and the truth about them: for tests, benchmarks, and to try the audit."""
