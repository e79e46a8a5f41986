"""M3 programs at work in one process."""
