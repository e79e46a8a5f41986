"""Values of SQL to words and back: one by one, as rows, as Arrow columns, as files."""
