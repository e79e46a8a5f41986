"""A server that does nothing: ``python -m cumulus_lab.bench.serve.floor_server ROWS --port N``.

It has the loop and the framework of `cumulus serve`, and gives bytes that were made before it listens; what is written
to it is read and forgotten, and subscribers are sent the same bytes twenty times a second.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import pyarrow as pa
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

from cumulus_lab.bench.serve.processes import ARROW
from cumulus_lab.bench.serve.rows import as_ipc, sales

TICK_S, TICK_ROWS = 0.05, 32


def main(rows: int, port: int) -> None:
    """Serve until told to end."""
    table = sales(rows)
    wide = table.append_column("a", table["id"]).append_column("b", table["id"])
    for name in "cd":
        wide = wide.append_column(name, table["weight"])
    arrow, one = as_ipc(wide), json.dumps({"at": 1, "rows": [[1] * 11]}).encode()
    tick = f"event: changes\nid: 1\ndata: {json.dumps({'at': 1, 'rows': [[1] * 12] * TICK_ROWS})}\n\n".encode()
    app = FastAPI()

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Tell that it lives."""
        return {"status": "ok"}

    @app.get("/v1/views/{name}/rows")
    async def rows_of(name: str, request: Request) -> Response:
        """Give bytes that are there."""
        if request.headers.get("accept") == ARROW:
            return Response(arrow, media_type=ARROW)
        return Response(one, media_type="application/json")

    @app.post("/v1/transactions")
    async def take(request: Request) -> dict[str, int]:
        """Read, and forget."""
        return {"at": len(await request.body())}

    @app.post("/v1/tables/{name}/rows")
    async def take_rows(name: str, request: Request) -> dict[str, int]:
        """Read, take the rows apart, and forget."""
        return {"rows": int(pa.ipc.open_stream(await request.body()).read_all().num_rows)}

    @app.get("/v1/views/{name}/changes")
    async def changes(name: str) -> StreamingResponse:
        """Give the same bytes again and again."""

        async def ticks() -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(TICK_S)
                yield tick

        return StreamingResponse(ticks(), media_type="text/event-stream")

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[sys.argv.index("--port") + 1]))
