"""Deltas and simplification of calculus terms, and what they mean."""
