"""The dashboard: the files every node serves under ``/dashboard/``, and the headers that keep their page to itself.

The page asks nothing but its own node: the policy forbids every other origin, scripts and styles within the document, frames
around it, and turning text into markup at all, so that no name or query text can become a script.
"""

from pathlib import Path

from aiohttp import web

from sbon_node.api.server.guard import expect
from sbon_protocol.errors import SbonError

FOLDER = Path(__file__).parent / "dashboard"
INDEX = "index.html"

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "Cache-Control": "no-cache",  # asked again each time, and answered 304 while it is the same file
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def add_dashboard(app: web.Application) -> None:
    """Add the page's paths. They are served while the node starts or stops as well, and the page shows which."""
    files = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.suffix in TYPES}

    async def served(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"] or INDEX
        path = files.get(name)
        if path is None:
            raise SbonError("unknown-path", f"the dashboard has no file {name!r}", where=request.path)
        return web.FileResponse(path, headers={**HEADERS, "Content-Type": f"{TYPES[path.suffix]}; charset=utf-8"})

    async def to_dashboard(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/dashboard/")

    app.router.add_get("/dashboard/{name:.*}", served, expect_handler=expect)
    for path in ("/", "/dashboard"):
        app.router.add_get(path, to_dashboard, expect_handler=expect)
