"""Runs of many simulated worlds, in processes: which seeds are clean, what has happened in them, which ones fail.

Owns the processes, the summary and its text. What is run, a scenario, is its caller's; how a world goes on is
`cumulus_lab.simulation`'s.
"""

from cumulus_lab.experiments.seeds import SeedFailure, Seeds, SeedSummary, failure_lines, run_seeds

__all__ = ["SeedFailure", "SeedSummary", "Seeds", "failure_lines", "run_seeds"]
