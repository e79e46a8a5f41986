"""Routes of cubes: what they are made of, selections, members, base rows, and how an answer was found."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cumulus.catalog.names import known_name
from cumulus.cubes import Cube
from cumulus.errors import UsageError
from cumulus.hosts import Answer
from cumulus.olap import Answered, CubeExplanation, CubeShape, Measure, Selection, selection_of
from cumulus.server.access import User
from cumulus.server.http.answering import PROBLEMS, ROW_ANSWERS, format_of, rows_response
from cumulus.server.http.bodies import small_json
from cumulus.server.http.models import (
    CubeList,
    CubeModel,
    DimensionModel,
    ExplanationModel,
    KeptModel,
    MeasureModel,
    MemberList,
    SelectionModel,
)
from cumulus.server.http.site import Site, user_of
from cumulus.server.http.views import FORMAT, column_models
from cumulus.server.intake.json_slices import parsed_json
from cumulus.server.json_columns import json_text

EXPLAIN = "X-Cumulus-Explain"
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": SelectionModel.model_json_schema()}},
    }
}


def cube_routes(site: Site) -> APIRouter:
    """Return the routes of cubes, and of the other views that can be folded."""
    router = APIRouter(prefix="/v1/cubes", tags=["cubes"], responses=PROBLEMS)

    @router.get("", response_model=CubeList)
    async def list_cubes(request: Request) -> Any:
        """List the cubes, and the views that can be asked as cubes of flat dimensions."""
        user = user_of(request)
        known = {cube.name for cube in site.source.program.cubes}
        names = [name for name in site.source.cubes().names() if user.may_read(name)]
        return CubeList(
            at=site.source.at,
            cubes=[name for name in names if name in known],
            views=[name for name in names if name not in known],
        )

    @router.get("/{name:name}", response_model=CubeModel)
    async def show_cube(name: str, request: Request) -> Any:
        """Describe a cube: its dimensions, measures and kept levels."""
        user = user_of(request)
        shape = await site.read(_shape, site, user, name)
        kept = await site.read(site.source.cubes().kept, shape.name)
        return CubeModel(
            name=shape.name,
            columns=column_models(shape.columns),
            dimensions=[DimensionModel.model_validate(asdict(each)) for each in shape.dimensions],
            measures=[_measure(user, each) for each in shape.measures],
            kept=[KeptModel.model_validate(asdict(each)) for each in kept] if user.views is None else [],
        )

    @router.get("/{name:name}/members", response_model=MemberList)
    async def members(
        name: str,
        request: Request,
        dimension: str,
        level: str | None = None,
        under: Annotated[str | None, Query(description="The path of a member, as a JSON list.")] = None,
        like: Annotated[str | None, Query(description="A pattern of LIKE.")] = None,
        limit: Annotated[int, Query(ge=0, le=100_000)] = 100,
    ) -> Any:
        """Return members of a dimension, in their order."""
        user = user_of(request)
        shape = await site.read(_shape, site, user, name)
        path = () if under is None else parsed_json(under, "under")
        if not isinstance(path, (list, tuple)):
            raise UsageError("under is no JSON list", hint='Such as under=["ASIA"].')
        cube = Cube(site.source.cubes(), shape.name)
        found = await site.read(cube.members, dimension, level=level, under=tuple(path), like=like, limit=limit)
        return MemberList(
            at=found[0].at if found else site.source.at,
            members=[{"path": json.loads(json_text(each.path)), "level": each.level} for each in found],
        )

    _selection_routes(site, router)
    return router


def _selection_routes(site: Site, router: APIRouter) -> None:
    @router.post("/{name:name}/query", responses=ROW_ANSWERS, response_class=Response, openapi_extra=_BODY)
    async def query_cube(name: str, request: Request, format: Annotated[str | None, FORMAT] = None) -> Response:
        """Return the rows of a selection."""
        user, form = user_of(request), format_of(request)
        answer = await _answer(site, user, await _selection(site, user, name, request))
        found = site.check_size(Answer(answer.table, answer.at, answer.consistency))
        response = await rows_response(site, found, form)
        response.headers[EXPLAIN] = json.dumps(_explained(user, answer.explanation))
        return response

    @router.post("/{name:name}/explain", response_model=ExplanationModel, openapi_extra=_BODY)
    async def explain_selection(name: str, request: Request) -> Any:
        """Say which map answers a selection, what is read of it, and why no other map."""
        user = user_of(request)
        answer = await _answer(site, user, await _selection(site, user, name, request))
        return _explained(user, answer.explanation)

    @router.post("/{name:name}/facts", responses=ROW_ANSWERS, response_class=Response, openapi_extra=_BODY)
    async def facts(
        name: str,
        request: Request,
        limit: Annotated[int, Query(ge=0, le=1_000_000)] = 1_000,
        format: Annotated[str | None, FORMAT] = None,
    ) -> Response:
        """Return base rows behind the groups of a selection."""
        user, form = user_of(request), format_of(request)
        user.require_all_views()  # base rows have more in them than the cube
        selection = await _selection(site, user, name, request)
        at = site.source.at  # they are of this state, or of a later one
        table = await site.read(site.source.cubes().facts, selection, limit)
        response = await rows_response(site, site.check_size(Answer(table, at)), form)
        del response.headers["ETag"]
        return response


def _shape(site: Site, user: User, name: str) -> CubeShape:
    cubes = site.source.cubes()
    known = known_name(name, [each for each in cubes.names() if user.may_read(each)], "cube")
    return cubes.shape(known)


async def _selection(site: Site, user: User, name: str, request: Request) -> Selection:
    shape = await site.read(_shape, site, user, name)
    given = await small_json(request)
    if isinstance(given, dict) and isinstance(given.get("after"), int):
        await site.arrivals.wait_for(given["after"], site.limits.wait_s)
    return selection_of(site.source.cubes(), shape, given)


async def _answer(site: Site, user: User, selection: Selection) -> Answered:
    answer: Answered = await site.read(site.source.cubes().evaluate, selection)
    return answer


def _explained(user: User, found: CubeExplanation) -> dict[str, Any]:
    """Return an explanation; who may read some views only is not told of maps, which others may share."""
    told = asdict(found)
    if user.views is not None:
        told |= {"map": "", "candidates": []}
    return told


def _measure(user: User, measure: Measure) -> MeasureModel:
    maps = list(measure.maps) if user.views is None else []
    return MeasureModel(name=measure.name, type=measure.type, kind=measure.kind, maps=maps)
