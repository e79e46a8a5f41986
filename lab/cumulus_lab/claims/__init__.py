"""What the papers claim of a cluster, measured: `cumulus experiments cluster`."""
