"""The lab in containers, with a real engine, and the tour's words without one."""
