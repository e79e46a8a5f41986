"""A run of the Spark host in a process of its own, for tests that kill it: `python spark_driver.py IN OUT
[BUCKETS]`."""

from __future__ import annotations

import sys

from cumulus.m3 import parse
from cumulus.spark import local_session, maintain
from support.orders_stream import PROGRAM


def main(folder: str, out: str, buckets: str = "1") -> None:
    """Maintain the program of `orders_stream` until all files are read; tell each epoch."""
    spark = local_session(cores=2, memory="1g")
    maintain(
        spark,
        parse(PROGRAM),
        folder,
        out,
        layout="one-bucket" if buckets == "1" else "one-round",
        buckets=int(buckets),
        keep=10_000,
        compact_bytes=3_000,
        on_epoch=lambda epoch: print(epoch.number, *epoch.how, flush=True),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
