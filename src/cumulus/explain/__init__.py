"""What keeping a view costs, read off the M3 program alone: cost classes, sizes, and the text that says them.

Never compiles.
"""
