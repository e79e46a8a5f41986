"""Calculus terms to M3 programs."""
