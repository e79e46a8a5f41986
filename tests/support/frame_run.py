"""A run over a streaming DataFrame, in a process of its own: `python frame_run.py IN OUT BUCKETS`.

IN has a file of JSON lines for each epoch, with columns a and b. BUCKETS may be another number than that of the
checkpoint in OUT.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cumulus.compiler.pipeline import compile_sql
from cumulus.spark import local_session, maintain
from cumulus.spark.streams import Frame

TEXT = "CREATE TABLE t (a INT, b INT); CREATE VIEW v AS SELECT a, SUM(b) AS s, MAX(b) AS m FROM t GROUP BY a;"


def main(folder: str, out: str, buckets: str) -> None:
    """Take in all files that are there."""
    spark = local_session(cores=2, memory="1g")
    stream = spark.readStream.schema("a INT, b INT").option("maxFilesPerTrigger", 1).json(folder)
    maintain(
        spark,
        compile_sql(TEXT),
        {"t": Frame("t", stream)},
        Path(out),
        buckets=int(buckets),
        layout="one-round",
        say=lambda words: print(words, flush=True),
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
