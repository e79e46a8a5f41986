"""The page: views that are alive, a cube explorer, the program with its numbers, what was refused and what went wrong."""
