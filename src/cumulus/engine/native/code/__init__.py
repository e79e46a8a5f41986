"""Triggers in the kernel: loops, look-ups, sums, what they add, and the undo log."""
