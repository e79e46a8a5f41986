"""A run of the Spark host in a process of its own, for tests that kill it: `python spark_driver.py IN OUT
[BUCKETS [CHECKPOINT [MASTER]]]`; "2 judged" are two buckets behind judges."""

from __future__ import annotations

import json
import os
import sys

from cumulus.m3 import parse
from cumulus.spark import local_session, maintain
from cumulus.spark.session import session
from support.orders_stream import PROGRAM


def main(folder: str, out: str, buckets: str = "1", checkpoint: str = "", master: str = "") -> None:
    """Maintain the program of `orders_stream` until all files are read, with its tables; tell each epoch.

    `CUMULUS_STORAGE` has the options of the store, as JSON; `CUMULUS_CONF` settings of Spark.
    """
    settings = json.loads(os.environ.get("CUMULUS_CONF", "{}"))
    number, _, layout = buckets.partition(" ")
    maintain(
        session(master, settings) if master else local_session(cores=2, memory="1g", settings=settings),
        parse(PROGRAM),
        folder,
        out,
        checkpoint,
        layout=layout or ("one-bucket" if buckets == "1" else "one-round"),
        buckets=int(number),
        keep=10_000,
        compact_bytes=3_000,
        publish=("all",),
        storage=json.loads(os.environ.get("CUMULUS_STORAGE", "{}")),
        on_epoch=lambda epoch: print(epoch.number, round(epoch.seconds, 3), *epoch.how, flush=True),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
