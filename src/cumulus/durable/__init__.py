"""Files that are on the disk whole or not at all. Knows nothing of what is in them."""
