"""M3 programs as PySpark streaming queries."""
