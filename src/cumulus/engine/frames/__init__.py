"""Frames: rows of maps as words that cross processes, and what a word means; engines take rows out and add them."""
