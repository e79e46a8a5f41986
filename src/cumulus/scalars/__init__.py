"""SQL's scalar functions: DuckDB's, with their types, and as Python source.

Owns what a function means; knows no rows and no maps.
"""
