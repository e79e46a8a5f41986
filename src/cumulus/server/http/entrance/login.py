"""Routes of who is who: the page logs in with a token, and gets a cookie in its place."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from cumulus.errors import AccessError, UsageError
from cumulus.server.http.answering import PROBLEMS
from cumulus.server.http.bodies import small_json
from cumulus.server.http.entrance.guard import COOKIE
from cumulus.server.http.entrance.sessions import FailedLogins
from cumulus.server.http.models import LoginModel, UserModel
from cumulus.server.http.site import Site, user_of


def login_routes(site: Site) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1", tags=["access"], responses=PROBLEMS)
    failures = FailedLogins()

    @router.post("/login", response_model=UserModel, openapi_extra={"requestBody": _login_body()})
    async def login(request: Request) -> Response:
        """Take a token; set the cookie that stands for it in this browser."""
        body = await small_json(request)
        if not isinstance(body, dict) or not isinstance(body.get("token"), str):
            raise UsageError("the body has no token", hint='Such as {"token": "cumulus_…"}.')
        user = site.users.user_with(body["token"])
        if user is None:
            await failures.delay("" if request.client is None else request.client.host)
            raise AccessError("this token is not known here", is_known=False, hint="Ask for another one.")
        answer = JSONResponse({"name": user.name, "role": user.role, "views": user.views})
        answer.set_cookie(
            COOKIE,
            site.sessions.begin(user),
            max_age=int(site.sessions.KEPT_S),
            httponly=True,
            samesite="strict",
            secure=site.settings.certificate is not None,
        )
        return answer

    @router.post("/logout", status_code=204)
    async def logout(request: Request) -> Response:
        """Forget the cookie."""
        number = request.cookies.get(COOKIE, "")
        site.sessions.end(number)
        site.open.end_session(number)
        answer = Response(status_code=204)
        answer.delete_cookie(COOKIE)
        return answer

    @router.get("/me", response_model=UserModel)
    async def me(request: Request) -> Any:
        """Say who asks."""
        user = user_of(request)
        return UserModel(name=user.name, role=user.role, views=None if user.views is None else list(user.views))

    return router


def _login_body() -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": LoginModel.model_json_schema()}}}
