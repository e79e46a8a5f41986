"""The star schema benchmark: a fact table, four dimensions, thirteen queries, and a generator."""

from cumulus_lab.workloads.ssb.samples import sample
from cumulus_lab.workloads.ssb.schema import BENCHMARK, QUERIES, TABLES
from cumulus_lab.workloads.ssb.streams import generate, stream

__all__ = ["BENCHMARK", "QUERIES", "TABLES", "generate", "sample", "stream"]
