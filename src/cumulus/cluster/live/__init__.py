"""A cluster that runs until it is stopped, and its clients."""
