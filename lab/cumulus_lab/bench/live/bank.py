"""A bank on a running cluster: money moves, and whoever sums what all accounts have must get 0.

What a transfer takes from one account and gives to another lies on two nodes, so a tentative sum may have one side and
lack the other. Committed sums have both or none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.cluster.live.client import ClusterClient
from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.output.query import query
from cumulus.errors import CumulusError
from cumulus.hosts import Answer, WriteReceipt
from cumulus.views.consistency import Consistency
from cumulus_lab.bench.live.running_cluster import RunningCluster

TABLES = ("transfers", "payments")
"""Both are of one form, so that two switches have one each."""
_COLUMNS = "id BIGINT NOT NULL, source BIGINT NOT NULL, target BIGINT NOT NULL, amount BIGINT NOT NULL"
SQL = f"""
CREATE TABLE transfers ({_COLUMNS});
CREATE TABLE payments ({_COLUMNS});

CREATE VIEW balances AS
SELECT account, SUM(amount) AS balance, COUNT(*) AS moves
FROM (
  SELECT source AS account, -amount AS amount FROM transfers
  UNION ALL SELECT target, amount FROM transfers
  UNION ALL SELECT source, -amount FROM payments
  UNION ALL SELECT target, amount FROM payments
) moves
GROUP BY account;

CREATE VIEW credits AS SELECT target AS account, SUM(amount) AS credits FROM transfers GROUP BY target;
CREATE VIEW debits AS SELECT source AS account, SUM(amount) AS debits FROM transfers GROUP BY source;
CREATE VIEW balance AS
SELECT credits.account, credits - debits AS balance FROM credits, debits WHERE credits.account = debits.account;
CREATE VIEW total AS SELECT SUM(balance) AS total FROM balance;
"""
"""`balances` is spread. `balance` and `total`, views of views, are gated; each account must have sent and got once."""
SPREAD, NESTED = "balances", "total"
_SUMS = {
    SPREAD: "SELECT coalesce(sum(balance), 0) AS total FROM balances",
    NESTED: "SELECT coalesce(sum(total), 0) AS total FROM total",
}

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Moves:
    """Transfers of money, in order: the first ones go once round all accounts."""

    source: Numbers
    target: Numbers
    amount: Numbers

    @classmethod
    def drawn(cls, count: int, accounts: int, seed: int) -> Moves:
        """Draw so many transfers."""
        draw = np.random.default_rng(seed)
        ring = np.arange(accounts)
        source = np.concatenate([ring, draw.integers(0, accounts, count - accounts)])
        steps = np.concatenate([np.ones(accounts, np.int64), draw.integers(1, accounts, count - accounts)])
        amount = np.concatenate([np.ones(accounts, np.int64), draw.integers(1, 100, count - accounts)])
        return cls(source, (source + steps) % accounts, amount)

    def rows(self, begin: int, end: int) -> pa.Table:
        """Return some of them as rows of a table."""
        here = slice(begin, end)
        columns = [np.arange(begin, end), self.source[here], self.target[here], self.amount[here]]
        return pa.table(list(map(pa.array, columns)), names=["id", "source", "target", "amount"])

    def balances(self) -> list[tuple[int, int, int]]:
        """Return what each account has in the end, and how often it was moved: account, balance, moves."""
        most = max(self.source.max(), self.target.max()) + 1
        balance = np.zeros(most, np.int64)
        np.add.at(balance, self.source, -self.amount)
        np.add.at(balance, self.target, self.amount)
        moves = np.bincount(self.source, minlength=most) + np.bincount(self.target, minlength=most)
        return [(at, int(balance[at]), int(moves[at])) for at in range(most) if moves[at]]


@dataclass(slots=True)
class SumReads:
    """How often a sum over all accounts was read in one way, and how often it was wrong.

    Attributes
    ----------
    labelled
        Wrong ones whose answer says that it is tentative.
    """

    view: str
    read: str
    reads: int = 0
    wrong: int = 0
    labelled: int = 0
    furthest: int = 0

    def note(self, total: int, is_tentative: bool) -> None:
        """Count a sum."""
        self.reads += 1
        self.wrong += total != 0
        self.labelled += total != 0 and is_tentative
        self.furthest = max(self.furthest, abs(total))


def _insert(cluster: RunningCluster, table: str, parts: Sequence[pa.Table]) -> list[WriteReceipt]:
    """Insert transfers into one table, by a client of its own."""
    with cluster.connect() as client:
        return [client.insert(table, part) for part in parts]


def write_and_read(cluster: RunningCluster, moves: Moves, accounts: int, batch: int) -> tuple[list[SumReads], int]:
    """Insert transfers, by a client for each table, and read the sums meanwhile.

    Returns
    -------
    list[SumReads], int
        How the sums were, by view and read; and the epoch that has everything.
    """
    with cluster.connect() as client:
        client.view(SPREAD, after=client.insert("transfers", moves.rows(0, accounts)))
        begins = list(range(accounts, len(moves.source), batch))
        parts = [moves.rows(begin, min(begin + batch, len(moves.source))) for begin in begins]
        kinds = [SumReads(view, read) for view in (SPREAD, NESTED) for read in ("tentative", "committed")]
        with ThreadPoolExecutor(len(TABLES)) as pool:
            writing = [
                pool.submit(_insert, cluster, table, parts[place :: len(TABLES)]) for place, table in enumerate(TABLES)
            ]
            while not all(each.done() for each in writing):
                for kind in kinds:
                    answer = client.view(kind.view, kind.read)
                    kind.note(_sum(answer), answer.consistency is Consistency.TENTATIVE and answer.epoch is None)
        last = max((token for each in writing for token in each.result()), key=lambda token: token.epoch)
        client.view(SPREAD, after=last)
    return kinds, last.epoch


def _sum(answer: Answer) -> int:
    """Return the sum of what a view says of money; an empty one says that there is none."""
    return int(pc.sum(answer.arrow().column("balance" if answer.view == SPREAD else "total")).as_py() or 0)


def read_epochs(cluster: RunningCluster) -> Iterator[SumReads]:
    """Yield how the sums are in the files of all committed epochs."""
    for view, sql in _SUMS.items():
        found = SumReads(view, "files of epochs")
        for epoch in committed_epochs(cluster.home):
            found.note(int(query(cluster.home, sql, epoch).column("total")[0].as_py()), False)
        yield found


def check(reads: list[SumReads], client: ClusterClient, moves: Moves) -> None:
    """Raise CumulusError if a sum was wrong that must not be, or the accounts do not have what they should."""
    wrong = [
        f"{each.wrong - each.labelled} of {each.reads} sums over {each.view}, {each.read}"
        for each in reads
        if each.wrong > each.labelled
    ]
    if sorted(client.view(SPREAD).rows()) != moves.balances():
        wrong.append("the balances in the end")
    if wrong:
        raise CumulusError(f"wrong: {'; '.join(wrong)}", hint="Please report it, with the command.")


def rows_of(reads: list[SumReads]) -> list[dict[str, Any]]:
    """Return the rows that are printed."""
    names = ("view", "read", "reads", "wrong", "labelled", "furthest")
    return [{name: getattr(each, name) for name in names} for each in reads]
