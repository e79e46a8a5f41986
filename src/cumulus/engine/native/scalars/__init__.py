"""Scalar functions in the kernel, and calls of those that are Python's."""
