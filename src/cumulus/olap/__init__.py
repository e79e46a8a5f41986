"""Cubes and their operations: roll-up, drill-down, slice and dice, as folds of views."""
