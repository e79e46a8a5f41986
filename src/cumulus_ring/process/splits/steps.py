"""Queries that are a series of steps, each of which can be cancelled."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, TypeVar

import pyarrow as pa

from cumulus.errors import CumulusError, QueryCancelledError
from cumulus_ring.nodes import TakeBatch

Found = TypeVar("Found")


class QueryStep(Protocol):
    """Work that another thread can cancel."""

    def cancel(self, error: CumulusError) -> None:
        """End it soon."""


class SteppedQuery(ABC):
    """A query in steps (`cumulus_ring.nodes.AnyQuery`): `cancel` ends the one that runs, and no other begins."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._step: QueryStep | None = None
        self._error: CumulusError | None = None
        self._is_started = False
        self._state = threading.Lock()
        self._over = threading.Event()

    @property
    def sql(self) -> str:
        """Its text."""
        return self._sql

    @property
    def is_cancelled(self) -> bool:
        """Whether it is to end with an error."""
        with self._state:
            return self._error is not None

    def cancel(self, error: CumulusError | None = None) -> None:
        """End it with an error, the first that it is given, from any thread; return when it has ended."""
        with self._state:
            if self._error is None:
                self._error = error or QueryCancelledError("the query was cancelled", hint="Ask it again.")
            step, told, is_started = self._step, self._error, self._is_started
        if step is not None:
            step.cancel(told)
        if is_started:
            self._over.wait()

    def run(self, take: TakeBatch | None = None) -> pa.Table:
        """Return the result; once.

        Parameters
        ----------
        take
            Gets the batches of it when it is whole, and then a table without rows is returned.

        Raises
        ------
        CumulusError
            What it was cancelled with, or the error of a step.
        """
        with self._state:
            self._is_started = True
        try:
            rows = self._run()
            if take is None:
                return rows
            for batch in rows.to_batches():
                take(batch)
            return rows.slice(0, 0)
        except CumulusError as problem:
            with self._state:
                error = self._error
            raise error or problem from None
        finally:
            self._over.set()

    @abstractmethod
    def _run(self) -> pa.Table:
        """Return the result, by steps."""

    def _do(self, step: QueryStep, run: Callable[[], Found]) -> Found:
        """Run a step."""
        with self._state:
            if self._error is not None:
                raise self._error
            self._step = step
        try:
            return run()
        finally:
            with self._state:
                self._step = None
