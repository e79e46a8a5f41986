"""The page's files as they are sent: compressed once, named by their content so that browsers keep them."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
_FOREVER = "public, max-age=31536000, immutable"
_LEVEL = 6


@dataclass(frozen=True)
class PageFile:
    """A file of the page.

    Parameters
    ----------
    name
        Its extension says what it is.
    """

    name: str
    content: bytes

    @cached_property
    def version(self) -> str:
        """What its content is known by."""
        return hashlib.sha256(self.content).hexdigest()[:16]

    @cached_property
    def compressed(self) -> bytes:
        """The content by gzip; of several megabytes that takes a second."""
        return gzip.compress(self.content, _LEVEL, mtime=0)

    def answer(self, request: Request, headers: Mapping[str, str], version: str | None = None) -> Response:
        """Return the answer to a request: nothing where the browser has it, compressed where it may be.

        Parameters
        ----------
        version
            What it was asked for as; where that is its own, the browser need never ask again.
        """
        is_compressed = takes_gzip(request.headers.get("accept-encoding", ""))
        tag = f'"{self.version}{"-gzip" if is_compressed else ""}"'
        kept = {"ETag": tag, "Vary": "Accept-Encoding"}
        kept["Cache-Control"] = _FOREVER if version == self.version else "no-cache"
        known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
        if tag in known:
            return Response(status_code=304, headers={**headers, **kept})
        if is_compressed:
            kept["Content-Encoding"] = "gzip"
        content = self.compressed if is_compressed else self.content
        return Response(content, media_type=_TYPES[Path(self.name).suffix], headers={**headers, **kept})


def takes_gzip(accepted: str) -> bool:
    """Whether an ``Accept-Encoding`` allows gzip.

    Examples
    --------
    >>> [takes_gzip(each) for each in ("gzip, br", "GZIP;q=0.5", "*", "gzip;q=0", "br", "")]
    [True, True, True, False, False, False]
    """
    weights = {}
    for each in accepted.lower().split(","):
        coding, *rest = (part.strip() for part in each.split(";"))
        weight = next((part[2:] for part in rest if part.startswith("q=")), "1")
        weights[coding] = re.fullmatch(r"0(\.0*)?", weight) is None
    return weights.get("gzip", weights.get("*", False))


def page_files(own: Path, bundle: Path) -> dict[str, PageFile]:
    """Return the files of the page, `index.html` among them, each referring to the others by their content.

    Parameters
    ----------
    own, bundle
        The folder of the page's own files, and Perspective's, without their extensions.
    """
    found: dict[str, PageFile] = {}

    def add(name: str, path: Path) -> None:
        content = path.read_bytes()
        for other in found.values():  # those that it may refer to came before
            for quote in (b'"./%s"', b'"page/files/%s"'):
                old = quote % other.name.encode()
                content = content.replace(old, old[:-1] + b"?v=" + other.version.encode() + b'"')
        found[name] = PageFile(name, content)

    for suffix in (".css", ".js"):
        add(f"perspective{suffix}", bundle.with_suffix(suffix))
    for name in ("page.css", "page.js", "index.html"):
        add(name, own / name)
    return found
