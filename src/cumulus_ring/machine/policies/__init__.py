"""Policies that the paper names and leaves open, off by default: other rules for nodes than figures 6 to 8."""
