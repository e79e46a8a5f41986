"""Sources that others write: their committed epochs are followed, and read from the files."""
