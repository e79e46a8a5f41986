"""Which rows and maps may be spread over machines, and by which keys: one-round layouts of a program.

Knows no machines.
"""
