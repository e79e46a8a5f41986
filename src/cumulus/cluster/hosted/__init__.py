"""A cluster whose machines run where an engine has places: Spark's executors, Ray's actors."""
