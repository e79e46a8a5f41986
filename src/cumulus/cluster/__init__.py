"""The cluster: switches and nodes as machines without input and output (docs/cluster.md)."""
