"""The frame of the console: templates, files that pages load, and the headers that keep a page to itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, tzinfo
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shadowrelay.console import words
from shadowrelay.core.messages import FOREVER
from shadowrelay.core.spelling import readable
from shadowrelay.shown.status import limits_told, reading_told

FRAGMENTS = "x-fragments"
ZONE = "shadowrelay-zone"
"""A request with this header gets the parts of a page that change, without its frame."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_SOON = timedelta(days=14)  # a certificate that ends within is told in red
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_FILES = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "mark.svg": "image/svg+xml",
}


class Site:
    """Makes pages of templates. Every value is escaped."""

    def __init__(self, name: str, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._files = {one: files(__package__).joinpath("static", one).read_bytes() for one in _FILES}
        version = hashlib.sha256(b"".join(self._files.values())).hexdigest()[:12]
        self._at = f"/static/{version}"
        self._templates = Environment(
            loader=PackageLoader(__package__),
            autoescape=True,
            undefined=ChainableUndefined,
            finalize=_readable,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {"node": name, "static": self._at, "link": link}
        self._templates.filters |= {
            "octets": words.octets,
            "field": _field,
            "number": words.number,
            "short": words.short,
            "iso": words.iso,
            "span": words.span,
            "listed": words.listed,
            "sentence": words.sentence,
            "reading": reading_told,
            "limits": limits_told,
        }
        self._templates.globals["many"] = words.many

    def routes(self) -> list[Route]:
        """The stylesheet, the script and the mark, with their version in the address."""
        return [Route(f"{self._at}/{name}", self._file(name)) for name in _FILES]

    def page(
        self, request: Request, template: str, given: Mapping[str, Any], *, status: int = 200
    ) -> Response:
        now, zone = self._clock(), zone_of(request)
        fragments = FRAGMENTS in request.headers
        text = self._templates.get_template(template).render(
            **given,
            layout="fragments.html" if fragments else "page.html",
            path=request.url.path,
            here=str(request.url.path) + (f"?{request.url.query}" if request.url.query else ""),
            now=now,
            ago=lambda at: words.ago(at, now),
            age=lambda at: words.age(at, now),
            clock=lambda at: words.clock(at, now, zone),
            waits=lambda at: (words.moment(at) or now) > now,
            soon=lambda at: (words.moment(at) or now) < now + _SOON,
            endless=lambda at: words.moment(at) == FOREVER,
        )
        return Response(text.encode("utf-8", "replace"), status, HEADERS, "text/html; charset=utf-8")

    def _file(self, name: str) -> Callable[[Request], Any]:
        headers = {
            **HEADERS,
            "cache-control": "public, max-age=31536000, immutable",
        }

        async def answered(request: Request) -> Response:
            del request
            return Response(self._files[name], headers=headers, media_type=_FILES[name])

        return answered


def _readable(value: object) -> object:
    """What strangers wrote may have control characters: they are shown as such. Lines stay lines."""
    return readable(value, kept="\n") if type(value) is str else value


def zone_of(request: Request) -> tzinfo:
    """The zone of who reads: the script of the pages tells it in a cookie. UTC before, and on request."""
    return words.zone_named(request.cookies.get(ZONE, ""))


def _field(value: object) -> Markup:
    """The value of a field of a form: it comes back as it was, so nothing in it is made readable."""
    return escape(value)


def link(path: str, given: Mapping[str, Any], **changes: Any) -> str:
    """The address of a page with these parameters; those that are empty are left out."""
    found = {key: value for key, value in {**given, **changes}.items() if value not in (None, "")}
    return f"{path}?{urlencode(found)}" if found else path
