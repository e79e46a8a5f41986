"""Bodies of requests: how large they are in the types of their tables, before they are decoded, and then their rows."""
