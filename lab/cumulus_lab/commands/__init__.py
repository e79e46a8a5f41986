"""`cumulus experiments` and `cumulus simulate`."""
