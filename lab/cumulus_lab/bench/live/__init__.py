"""What is measured of a cluster that runs on: its totals while money moves, and its memory."""
