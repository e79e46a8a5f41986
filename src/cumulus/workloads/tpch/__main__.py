"""``python -m cumulus.workloads.tpch SCALE DIR``: the tables as Parquet files, and the 22 queries as files of SQL."""

import sys
from pathlib import Path

from cumulus.errors import CumulusError, UsageError
from cumulus.workloads.checks import views
from cumulus.workloads.tpch.schema import QUERIES, TABLES, sql
from cumulus.workloads.tpch.source import generate


def write(scale: float, folder: Path) -> Path:
    """Write ``folder/sf<scale>/<table>.parquet`` and ``folder/queries/<query>.sql``; return the folder of the tables.

    Raises
    ------
    CumulusError
        As `generate` does.
    """
    tables = generate(scale, folder)
    queries = folder / "queries"
    queries.mkdir(exist_ok=True)
    for query in QUERIES:
        (queries / f"{query}.sql").write_text(views(sql(query))[query] + "\n", encoding="utf-8")
    return tables


def main(arguments: list[str]) -> None:
    """Write what the command line asks for; exit with 2 if it asks for something else."""
    try:
        scale, folder = float(arguments[0]), Path(arguments[1])
        if len(arguments) > 2:
            raise IndexError
    except (IndexError, ValueError):
        sys.exit("usage: python -m cumulus.workloads.tpch SCALE DIR")
    try:
        tables = write(scale, folder)
    except CumulusError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2 if isinstance(problem, UsageError) else 1)
    print(f"{len(TABLES)} tables in {tables}, {len(QUERIES)} queries in {folder / 'queries'}")


if __name__ == "__main__":
    main(sys.argv[1:])
