"""Runs with one checkpoint in one session, each with options of its own, in a process of its own.

`python spark_partitions.py MASTER IN OUT OPTIONS…`: MASTER is local, connect or a URL of Spark; each OPTIONS is JSON
for one `maintain` over `orders_stream` in 16 buckets. A line of JSON is told for each epoch, sentence and error.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from cumulus.errors import CumulusError
from cumulus.m3 import parse
from cumulus.spark import local_session, maintain
from cumulus.spark.session import session
from support.orders_stream import PROGRAM
from support.spark_sessions import session as plain_session

BUCKETS = 16


def main(master: str, folder: str, out: str, *runs: str) -> None:
    """Run with each of the options; tell what is heard."""

    def tell(**words: Any) -> None:
        print(json.dumps(words), flush=True)

    if master == "local":
        spark = local_session(cores=2, memory="1g")
    else:
        spark = plain_session("connect") if master == "connect" else session(master)
    program, number = parse(PROGRAM), 0
    for number, options in enumerate(map(json.loads, runs)):
        try:
            maintain(
                spark,
                program,
                folder,
                out,
                on_epoch=lambda epoch, run=number: tell(run=run, epoch=epoch.number, how=epoch.how),
                say=lambda words, run=number: tell(run=run, said=words),
                **{"layout": "one-round", "buckets": BUCKETS, "compact_bytes": 3_000} | options,
            )
        except CumulusError as problem:
            tell(run=number, error=str(problem))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
