"""What a cluster does with a program, said before it runs: `cumulus cluster plan` and whoever starts machines.

Knows programs, layouts and tables, and no messages.
"""
