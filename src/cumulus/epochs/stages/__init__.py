"""Runs of several buckets: all in one stage, or rows judged in one and views kept in another."""
