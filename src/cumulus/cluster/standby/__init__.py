"""Standbys: machines that keep copies of what others have logged, on another host."""
