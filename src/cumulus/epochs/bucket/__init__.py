"""One engine, and everything that decides which changes reach it: a function of its state and an epoch's payloads."""
