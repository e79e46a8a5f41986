"""The first rows of an empty warehouse: by triggers, or by SQL where that gives the same."""
