"""What is shown on a terminal: tables, bars, and the line that tells how far a long run is.

Knows nothing of what it shows.
"""
