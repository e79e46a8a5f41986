"""Files as rows: one module for each format, from bytes to columns with positions, and the typing of their cells."""
