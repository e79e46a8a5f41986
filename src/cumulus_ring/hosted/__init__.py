"""Nodes in processes that the keeper of a ring has not started: they join it, from any computer or from an engine."""
