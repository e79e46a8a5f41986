"""Routes that read: views, their rows, and SQL over them."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cumulus.catalog.schema import Column
from cumulus.errors import DelayError, UsageError
from cumulus.hosts import Answer, Freshness, RowRequest
from cumulus.m3.program import ViewDef
from cumulus.m3.view_reads import key_columns
from cumulus.server.access import User
from cumulus.server.http.answering import PROBLEMS, ROW_ANSWERS, format_of, rows_response, unchanged
from cumulus.server.http.models import ColumnModel, RowParameters, ViewList, ViewModel
from cumulus.server.http.selections import (
    seconds_of,
    typed_value,
    wanted_columns,
    wanted_rows,
)
from cumulus.server.http.site import Site, user_of
from cumulus.server.intake.json_slices import parsed_json
from cumulus.views.reader import Consistency

FORMAT = Query(description="json, ndjson, csv, arrow or parquet; else Accept decides.")
AFTER = Query(ge=0, le=1 << 62, description="Wait until readers see this transaction or epoch: the `at` of a write.")
_OPTIONS = tuple(RowParameters.model_fields)


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
            keys=list(key_columns(view, program.map(view.maps[0]).keys)),
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

    @router.get("/views/{name:name}", response_model=ViewModel)
    async def show_view(name: str, request: Request) -> Any:
        """Describe a view."""
        view = site.view_named(user_of(request), name)
        return described(view, await site.read(counted))

    @router.get("/views/{name:name}/rows", responses=ROW_ANSWERS, response_class=Response)
    async def read_rows(name: str, request: Request, wanted: Annotated[RowParameters, Query()]) -> Response:
        """Return rows of a view; ``column=value`` stands for any column."""
        user, form = user_of(request), format_of(request)
        view = site.view_named(user, name)
        if wanted.cursor is not None:
            return await _page_of(site, user, view, wanted.cursor, request)
        if wanted.after is not None:
            await site.arrivals.wait_for(wanted.after, site.limits.wait_s)
        if wanted.max_staleness is not None:
            await _check_age(site, wanted.max_staleness)
        if wanted.read is Consistency.COMMITTED and wanted.page is None:
            same = unchanged(site, request, form)
            if same is not None:
                return same
        named = wanted_columns(view, wanted.columns)
        columns = None if named is None else tuple(named)
        if wanted.key is not None or wanted.keys is not None:
            key = _key(site, view, wanted.key, wanted.keys)
            found = await site.read(
                site.source.host.read, RowRequest(view.name, columns, key=tuple(key)), Freshness(wanted.read)
            )
            return await rows_response(site, found, form)
        bounds = wanted_rows(view, request.query_params, _OPTIONS)
        most = None if wanted.limit is None else wanted.offset + wanted.limit
        found = await site.read(
            site.source.host.read,
            RowRequest(view.name, columns, tuple(bounds), limit=most),
            Freshness(wanted.read),
        )
        if wanted.offset:
            found = Answer(found.table.slice(wanted.offset), found.at, found.consistency)
        if wanted.page is not None and found.table.num_rows > wanted.page:
            kept = site.pages.keep(found, user.name)
            return await _page_of(site, user, view, f"{kept}.0.{wanted.page}", request)
        return await rows_response(site, site.check_size(found), form)

    return router


def _key(site: Site, view: ViewDef, texts: list[str] | None, json_list: str | None) -> list[Any]:
    """Return the values of a look-up's key."""
    values: list[Any] = list(texts or [])
    if json_list is not None:
        given = parsed_json(json_list, "keys")
        if not isinstance(given, list) or values:
            raise UsageError("keys is no JSON list, or key is given, too", hint="Such as keys=[1,null] or key=1&key=x.")
        values = given
    names = list(key_columns(view, site.source.program.map(view.maps[0]).keys))
    if len(values) != len(names):
        raise UsageError(
            f"{view.name} is looked up by ({', '.join(names)}), {len(values)} values were given",
            hint="Give one value for each of these columns, in this order.",
        )
    columns = {column.name: column for column in view.columns}
    return [typed_value(view.name, columns[name], value) for name, value in zip(names, values, strict=True)]


async def _page_of(site: Site, user: User, view: ViewDef, cursor: str, request: Request) -> Response:
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
        following = f"/v1/views/{quote(view.name, safe='')}/rows?{urlencode(asked)}"
    part = Answer(found.table.slice(first, rows), found.at, found.consistency)
    response = await rows_response(site, site.check_size(part), form, following)
    del response.headers["ETag"]
    return response


async def _check_age(site: Site, most: str) -> None:
    most_s = seconds_of("max_staleness", most)
    behind_ms = (await site.read(site.source.status)).get("behind_ms", 0)
    if behind_ms > most_s * 1000:
        raise DelayError(f"the rows are {behind_ms / 1000:.1f} s old, more than {most}", hint="Allow more.")
