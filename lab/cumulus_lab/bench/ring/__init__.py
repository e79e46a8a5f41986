"""What a storage ring costs: its links with nothing above them, planning, and whole queries beside DuckDB alone.

Each process is started as a program of its own.
"""
