"""DuckDB, asked: one SELECT and nothing else, its parse tree, the user's functions in it, what a query may take."""
