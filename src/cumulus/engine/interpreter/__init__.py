"""The interpreter: M3 programs as generated Python over dicts."""
