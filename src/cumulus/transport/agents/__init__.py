"""Processes on other hosts: an agent on each starts machines, and lets whoever supervises them hear and end them."""
