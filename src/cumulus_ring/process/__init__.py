"""A ring of processes on this computer: what starts and stops them, what runs in each, and who asks them."""
