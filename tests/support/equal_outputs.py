"""Whether two output folders say the same: what runs over seeds compare, for tests."""

from cumulus_lab.experiments.equal_outputs import difference

__all__ = ["difference"]
