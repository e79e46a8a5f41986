"""The cluster on this machine: what its processes read and write, and runs over folders (docs/cluster.md)."""
