"""The Data Cyclotron: a ring of nodes, between which hot chunks of tables go round; each node runs DuckDB.

A package of its own, which uses the lower rooms of `cumulus`: catalog, durable, transport. `cumulus` finds its
command and its client by entry points, and imports nothing of it.
"""
