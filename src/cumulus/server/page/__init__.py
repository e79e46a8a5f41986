"""The page: views that are alive, a cube explorer, the program with its numbers, and what went wrong."""
