"""The server: one process that keeps a warehouse on the disk, or follows a pipeline or a cluster, and answers tools."""
