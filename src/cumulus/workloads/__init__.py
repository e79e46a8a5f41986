"""Data to try things on, as streams of changes: a shop, a year of flights, and the tables and queries of TPC-H."""
