"""The shapes of bodies, as /openapi.json describes them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from cumulus.views.reader import Consistency


class ColumnModel(BaseModel):
    """A column."""

    name: str
    type: str | None = Field(description="As SQL names it; null where a program does not say it.")
    not_null: bool = False


class AnswerColumn(BaseModel):
    """A column of an answer."""

    name: str
    type: str


class RowsAnswer(BaseModel):
    """Rows, all of one state."""

    at: int | None = Field(description="The transaction or the epoch after which they are; null for tentative ones.")
    consistency: str
    columns: list[AnswerColumn]
    next: str | None = Field(description="The address of the next page.")
    rows: list[dict[str, Any]]


class ViewModel(BaseModel):
    """A view."""

    name: str
    columns: list[ColumnModel]
    keys: list[str] = Field(description="The columns by which one row is looked up, in this order.")
    is_cube: bool
    rows: int | None = Field(description="How many entries it has now; null where that is not counted.")


class ViewList(BaseModel):
    """The views that there are for who asks."""

    at: int
    views: list[ViewModel]


class TableModel(BaseModel):
    """A base table."""

    name: str
    columns: list[ColumnModel]
    key: list[str]
    static: bool
    rows: int | None


class TableList(BaseModel):
    """The tables."""

    at: int
    tables: list[TableModel]


class TransactionPart(BaseModel):
    """Rows of one table."""

    op: Literal["insert", "delete", "upsert"]
    table: str
    rows: list[list[Any] | dict[str, Any]] = Field(default=[], description="Lists in the table's order, or objects.")
    arrow: str | None = Field(default=None, description="In place of rows: an Arrow stream, in Base64.")


class TransactionModel(BaseModel):
    """Parts that are applied together, in order, or not at all."""

    parts: list[TransactionPart]


class WrittenAnswer(BaseModel):
    """A transaction that is on the disk and seen by readers."""

    at: int
    rows: int
    repeated: bool = Field(description="Whether a request of this Idempotency-Key had been applied before.")


class QueryModel(BaseModel):
    """A SELECT."""

    sql: str
    parameters: list[Any] | dict[str, Any] | None = Field(default=None, description="For ? or $1 in order, or by name.")


class StatementModel(BaseModel):
    """CREATE or DROP of views and cubes, or CREATE TABLE."""

    sql: str


class Moved(BaseModel):
    """From which state on something is so."""

    at: int


class ProgramText(BaseModel):
    """A program as M3."""

    at: int
    m3: str


class ErrorAnswer(BaseModel):
    """An error."""

    error: str = Field(description="Its class in cumulus.errors.")
    message: str
    hint: str = Field(description="A way out.")
    place: dict[str, Any] | None


class LoginModel(BaseModel):
    """Who logs in."""

    token: str


class StreamModel(BaseModel):
    """A request, stream or socket that is under way."""

    id: int
    user: str
    kind: Literal["request", "stream", "socket"]
    address: str = Field(description="With {name} in place of names.")
    view: str | None = Field(description="The view whose changes it follows.")
    peer: str | None
    seconds: float


class StreamList(BaseModel):
    """What is under way, the oldest first."""

    streams: list[StreamModel]


class EndStreamsModel(BaseModel):
    """Which streams are to end: those that have all that is given."""

    id: int | None = None
    user: str | None = None
    view: str | None = None


class EndedStreams(BaseModel):
    """The ids of what was ended."""

    ended: list[int]


class UserModel(BaseModel):
    """Who asks."""

    name: str
    role: str
    views: list[str] | None = Field(description="The only views there are for this user; null is all.")


class RowParameters(BaseModel):
    """Which rows of a view are wanted."""

    columns: str | None = Field(default=None, description="Some columns, with commas between them.")
    where: str | None = Field(
        default=None, description='JSON: {"a": 1, "b": [1, null], "c": {"from": 1, "to": 5}}; or column=value.'
    )
    limit: int | None = Field(default=None, ge=0, le=1 << 62)
    offset: int = Field(default=0, ge=0, le=1 << 62, description="Rows that are left out first.")
    page: int | None = Field(
        default=None, ge=1, le=1 << 62, description="Rows a page; `next` leads to the others, of one state."
    )
    cursor: str | None = Field(default=None, description="Of a page: as `next` has it.")
    after: int | None = Field(
        default=None, ge=0, le=1 << 62, description="Wait until readers see this transaction or epoch."
    )
    max_staleness: str | None = Field(default=None, description="Such as 2s: an error if rows are older.")
    read: Consistency = Consistency.COMMITTED
    key: list[str] | None = Field(default=None, description="Look one row up: a value for each key column.")
    keys: str | None = Field(default=None, description="The same as a JSON list, which can have null.")
    format: str | None = Field(default=None, description="json, ndjson, csv, arrow or parquet; else Accept decides.")


class CubeList(BaseModel):
    """The cubes, and the other views that can be folded."""

    at: int
    cubes: list[str]
    views: list[str]


class DimensionModel(BaseModel):
    """Levels from coarse to fine."""

    name: str
    levels: list[str]


class MeasureModel(BaseModel):
    """A column that is folded."""

    name: str
    type: str
    kind: str = Field(description="additive, end, distinct, fixed, or several with a plus between.")
    maps: list[str]


class KeptModel(BaseModel):
    """Levels for which there is a map."""

    levels: list[str]
    map: str
    entries: int | None
    statements: int
    asked_for: bool


class CubeModel(BaseModel):
    """What a cube is made of."""

    name: str
    columns: list[ColumnModel]
    dimensions: list[DimensionModel]
    measures: list[MeasureModel]
    kept: list[KeptModel]


class SelectionModel(BaseModel):
    """What is asked of a cube; `cumulus.Selection.to_json` writes it."""

    by: list[str] = Field(default=[], description="Levels, such as date.y.")
    measures: list[str] | None = None
    where: list[dict[str, Any]] = Field(default=[], description='Such as {"level": "y", "in": [1994, 1995]}.')
    pivot: list[str] = []
    totals: list[str] = []
    having: list[list[Any]] = Field(default=[], description='Such as ["revenue", ">", 1000].')
    order_by: list[str] = []
    top: dict[str, Any] | None = None
    limit: int | None = None
    after: int | None = None


class CandidateModel(BaseModel):
    """A map that might answer."""

    view: str
    columns: list[str]
    map: str
    entries: int
    reason: str = Field(description="Why it does not answer; empty for the one that does.")


class ExplanationModel(BaseModel):
    """How a selection was answered."""

    cube: str
    map: str
    levels: list[str]
    entries_read: int
    parts: int
    rows: int
    candidates: list[CandidateModel]
    at: int | None
    consistency: str


class MemberList(BaseModel):
    """Members of a dimension."""

    at: int | None
    members: list[dict[str, Any]]
