"""Routes that read: views, their rows, and SQL over them."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from cumulus.catalog.schema import Column
from cumulus.epochs.trigger import parse_trigger
from cumulus.errors import DelayError, UsageError
from cumulus.m3.program import ViewDef
from cumulus.server.access import User
from cumulus.server.answers import ReadRows
from cumulus.server.http.answering import PROBLEMS, ROW_ANSWERS, format_of, rows_response, unchanged
from cumulus.server.http.bodies import small_body
from cumulus.server.http.models import ColumnModel, QueryModel, ViewList, ViewModel
from cumulus.server.http.selections import (
    key_columns,
    parsed_json,
    typed_value,
    wanted_columns,
    wanted_rows,
)
from cumulus.server.http.site import Site, user_of
from cumulus.views.reader import Consistency

FORMAT = Query(description="json, ndjson, csv, arrow or parquet; else Accept decides.")
AFTER = Query(ge=0, le=1 << 62, description="Wait until readers see this transaction or epoch: the `at` of a write.")
_OPTIONS = (
    *("columns", "where", "limit", "offset", "page", "cursor", "after", "max_staleness", "read", "key", "keys"),
    "format",
)


def column_models(columns: tuple[Column, ...]) -> list[ColumnModel]:
    """Return columns as they are listed."""
    return [
        ColumnModel(name=each.name, type=None if each.type is None else str(each.type), not_null=each.not_null)
        for each in columns
    ]


def view_routes(site: Site) -> APIRouter:
    """Return the routes of views."""
    router = APIRouter(prefix="/v1", tags=["views"], responses=PROBLEMS)

    def described(view: ViewDef, entries: dict[str, int]) -> ViewModel:
        program = site.source.program
        return ViewModel(
            name=view.name,
            columns=column_models(view.columns),
            keys=key_columns(program, view),
            is_cube=any(cube.name == view.name for cube in program.cubes),
            rows=entries.get(view.maps[0]),
        )

    def counted() -> dict[str, int]:
        return dict(site.source.status().get("entries", {}))

    @router.get("/views", response_model=ViewList)
    async def list_views(request: Request) -> Any:
        """List the views with their columns and keys."""
        entries = await site.read(counted)
        return ViewList(at=site.source.at, views=[described(view, entries) for view in site.views_of(user_of(request))])

    @router.get("/views/{name}", response_model=ViewModel)
    async def show_view(name: str, request: Request) -> Any:
        """Describe a view."""
        view = site.view_named(user_of(request), name)
        return described(view, await site.read(counted))

    @router.get("/views/{name}/rows", responses=ROW_ANSWERS, response_class=Response)
    async def read_rows(
        request: Request,
        name: Annotated[str, Path()],
        columns: Annotated[str | None, Query(description="Some columns, with commas between them.")] = None,
        where: Annotated[
            str | None, Query(description='JSON: {"a": 1, "b": [1, null], "c": {"from": 1, "to": 5}}.')
        ] = None,
        limit: Annotated[int | None, Query(ge=0, le=1 << 62)] = None,
        offset: Annotated[int, Query(ge=0, le=1 << 62, description="Rows that are left out first.")] = 0,
        page: Annotated[
            int | None, Query(ge=1, le=1 << 62, description="Rows a page; `next` leads to the others, of one state.")
        ] = None,
        cursor: Annotated[str | None, Query(description="Of a page: as `next` has it.")] = None,
        after: Annotated[int | None, AFTER] = None,
        max_staleness: Annotated[str | None, Query(description="Such as 2s: an error if rows are older.")] = None,
        read: Annotated[Consistency, Query()] = Consistency.COMMITTED,
        key: Annotated[list[str] | None, Query(description="Look one row up: a value for each key column.")] = None,
        keys: Annotated[str | None, Query(description="The same as a JSON list, which can have null.")] = None,
        format: Annotated[str | None, FORMAT] = None,
    ) -> Response:
        """Return rows of a view; ``column=value`` stands for any column."""
        user, form = user_of(request), format_of(request)
        view = site.view_named(user, name)
        if cursor is not None:
            return _page_of(site, user, view, cursor, request)
        if after is not None:
            await site.arrivals.wait_for(after, site.limits.wait_s)
        if max_staleness is not None:
            await _check_age(site, max_staleness)
        if read is Consistency.COMMITTED and page is None:
            same = unchanged(site, request, form)
            if same is not None:
                return same
        if key is not None or keys is not None:
            found = await site.read(site.source.get, view.name, _key(site, view, key, keys), read=read)
            wanted = wanted_columns(view, columns)
            if wanted is not None:
                found = ReadRows(found.table.select(wanted), found.at, found.consistency)
            return rows_response(site, found, form)
        bounds = wanted_rows(view, request.query_params, _OPTIONS)
        most = None if limit is None else offset + limit
        found = await site.read(
            site.source.view, view.name, columns=wanted_columns(view, columns), where=bounds, limit=most, read=read
        )
        if offset:
            found = ReadRows(found.table.slice(offset), found.at, found.consistency)
        if page is not None and found.table.num_rows > page:
            kept = site.pages.keep(found, user.name)
            return _page_of(site, user, view, f"{kept}.0.{page}", request)
        return rows_response(site, site.check_size(found), form)

    @router.get("/query", responses=ROW_ANSWERS, response_class=Response)
    async def query_by_address(
        request: Request,
        sql: Annotated[str, Query(description="One SELECT over the views.")],
        parameters: Annotated[str | None, Query(description="A JSON list or object.")] = None,
        after: Annotated[int | None, AFTER] = None,
        format: Annotated[str | None, FORMAT] = None,
    ) -> Response:
        """Return the result of a SELECT over the views, and tables whose rows are kept."""
        given = None if parameters is None else parsed_json(parameters, "parameters")
        return await _query(site, request, sql, given, after)

    @router.post(
        "/query",
        responses=ROW_ANSWERS,
        response_class=Response,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": QueryModel.model_json_schema()}},
            }
        },
    )
    async def query_by_body(
        request: Request, after: Annotated[int | None, AFTER] = None, format: Annotated[str | None, FORMAT] = None
    ) -> Response:
        """Return the result of a SELECT over the views, and tables whose rows are kept."""
        body = parsed_json(await small_body(request), "the body")
        if not isinstance(body, dict) or not isinstance(body.get("sql"), str):
            raise UsageError("the body has no sql", hint='Such as {"sql": "SELECT * FROM v"}.')
        return await _query(site, request, body["sql"], body.get("parameters"), after)

    return router


async def _query(site: Site, request: Request, sql: str, parameters: Any, after: int | None) -> Response:
    user, form = user_of(request), format_of(request)
    if parameters is not None and not isinstance(parameters, (list, dict)):
        raise UsageError("parameters is neither a list nor an object", hint="Give a list for ?, an object for $name.")
    if after is not None:
        await site.arrivals.wait_for(after, site.limits.wait_s)
    same = unchanged(site, request, form)
    if same is not None and request.method == "GET":
        return same
    only = None if user.views is None else [view.name for view in site.views_of(user)]
    found = await site.read(site.source.query, sql, parameters, only=only, limits=site.query_limits)
    return rows_response(site, site.check_size(found), form)


def _key(site: Site, view: ViewDef, texts: list[str] | None, json_list: str | None) -> list[Any]:
    """Return the values of a look-up's key."""
    values: list[Any] = list(texts or [])
    if json_list is not None:
        given = parsed_json(json_list, "keys")
        if not isinstance(given, list) or values:
            raise UsageError("keys is no JSON list, or key is given, too", hint="Such as keys=[1,null] or key=1&key=x.")
        values = given
    names = key_columns(site.source.program, view)
    if len(values) != len(names):
        raise UsageError(
            f"{view.name} is looked up by ({', '.join(names)}), {len(values)} values were given",
            hint="Give one value for each of these columns, in this order.",
        )
    columns = {column.name: column for column in view.columns}
    return [typed_value(view.name, columns[name], value) for name, value in zip(names, values, strict=True)]


def _page_of(site: Site, user: User, view: ViewDef, cursor: str, request: Request) -> Response:
    """Return a page of an answer that is kept, and how the next one is asked for."""
    key, _, place = cursor.partition(".")
    begin, _, count = place.partition(".")
    if not (begin.isdecimal() and count.isdecimal() and len(begin) < 18 and 0 < len(count) < 18 and int(count)):
        raise UsageError(f"{cursor!r} is no cursor", hint="Take the address of the next page as it is given.")
    form, found = format_of(request), site.pages.get(key, user.name)
    first, rows = int(begin), int(count)
    following = ""
    if first + rows < found.table.num_rows:
        asked = {"cursor": f"{key}.{first + rows}.{rows}", "format": form.name}
        following = f"/v1/views/{_quoted(view.name)}/rows?{urlencode(asked)}"
    part = ReadRows(found.table.slice(first, rows), found.at, found.consistency)
    response = rows_response(site, site.check_size(part), form, following)
    del response.headers["ETag"]
    return response


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")


async def _check_age(site: Site, most: str) -> None:
    most_s = parse_trigger(most).every_s
    if most_s is None:
        raise UsageError(f"{most!r} is no time", hint="Write such as 2s or 500ms.")
    behind_ms = (await site.read(site.source.status)).get("behind_ms", 0)
    if behind_ms > most_s * 1000:
        raise DelayError(f"the rows are {behind_ms / 1000:.1f} s old, more than {most}", hint="Allow more.")
