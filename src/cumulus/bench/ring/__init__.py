"""What a storage ring costs: what its links take with nothing above them.

Each process is started as a program of its own, and measures its own CPU time.
"""
