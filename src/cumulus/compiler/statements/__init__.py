"""Statements of triggers: a monomial of a delta becomes factors over maps, the event's variables and rows."""
