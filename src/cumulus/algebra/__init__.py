"""Numbers, scalars and terms: what everything is computed with."""
