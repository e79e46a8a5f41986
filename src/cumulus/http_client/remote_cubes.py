"""Cubes of a server: `cumulus.Cube(client, "sales")` asks it by selections, and gets rows."""

from __future__ import annotations

import json

import pyarrow as pa

from cumulus.catalog.arrow import from_ipc
from cumulus.errors import RemoteProtocolError
from cumulus.http_client.asked_rows import path_part
from cumulus.http_client.connection import HttpConnection
from cumulus.http_client.told_columns import columns_of
from cumulus.olap import Answered, CubeExplanation, CubeShape, Dimension, KeptLevel, Measure, Question
from cumulus.olap.question_json import as_json
from cumulus.views.folding import Candidate
from cumulus.views.reader import Consistency


class RemoteCubes:
    """A `CubeSource` over requests to a server."""

    _connection: HttpConnection

    def names(self) -> tuple[str, ...]:
        """Return the names of the cubes, then those of the other views."""
        told = self._connection.json("GET", "/v1/cubes")
        return (*told["cubes"], *told["views"])

    def shape(self, name: str) -> CubeShape:
        """Return what a cube is made of; UnknownNameError if there is none."""
        told = self._connection.json("GET", _path(name))
        return CubeShape(
            told["name"],
            columns_of(told["columns"]),
            tuple(Dimension(each["name"], tuple(each["levels"])) for each in told["dimensions"]),
            tuple(Measure(each["name"], each["type"], each["kind"], tuple(each["maps"])) for each in told["measures"]),
        )

    def kept(self, name: str) -> tuple[KeptLevel, ...]:
        """Return the levels of a cube for which there are maps, the finest first."""
        return tuple(
            KeptLevel(tuple(each["levels"]), each["map"], each["entries"], each["statements"], each["asked_for"])
            for each in self._connection.json("GET", _path(name))["kept"]
        )

    def evaluate(self, question: Question) -> Answered:
        """Return the rows of a question."""
        answer = self._connection.rows(_path(question.shape.name, "query"), as_json(question))
        try:
            table = from_ipc(answer.content)
            told = json.loads(answer.headers["X-Cumulus-Explain"])
            consistency = Consistency(told["consistency"])
            candidates = tuple(Candidate(**{**each, "columns": tuple(each["columns"])}) for each in told["candidates"])
            told |= {"levels": tuple(told["levels"]), "candidates": candidates, "consistency": consistency}
            return Answered(table, told["at"], consistency, CubeExplanation(**told))
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as problem:
            raise RemoteProtocolError(f"{answer.url}: no answer of a cube: {problem}") from None

    def facts(self, question: Question, limit: int) -> pa.Table:
        """Return base rows behind a question's groups."""
        answer = self._connection.rows(_path(question.shape.name, "facts"), as_json(question), {"limit": limit})
        return from_ipc(answer.content)


def _path(name: str, what: str = "") -> str:
    return f"/v1/cubes/{path_part(name)}" + (f"/{what}" if what else "")
