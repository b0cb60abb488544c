"""A page somebody looks at, and what must not happen there meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page

PATIENCE_MS = 120_000


@contextmanager
def looking(
    browser: Browser, api: str, *, fails: bool = False, query: str = "", clock: bool = False, **context: Any
) -> Iterator[Page]:
    """The dashboard of the node at ``api``, live.

    In the end no request went elsewhere and nothing was complained of, but for what the browser says itself of a node that is
    expected to go away (``fails``). With ``clock`` the test can let the page's time pass.
    """
    opened = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **context})
    page = opened.new_page()
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    asked: set[str] = set()
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.add(request.url))
    if clock:
        page.clock.install()
    try:
        page.goto(f"{api}/{f'dashboard/#query={query}' if query else ''}")
        page.locator("#connection", has_text="Live").wait_for()
        yield page
    finally:
        opened.close()
    assert {urlsplit(url).netloc for url in asked} == {urlsplit(api).netloc}
    assert [text for text in complaints if not (fails and text.startswith("Failed to load resource"))] == []


def texts(page: Page, selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def middle(page: Page, node: str) -> tuple[float, float]:
    """Where the node is on the screen."""
    mark = page.locator(f"[data-node='{node}'] .hit")
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
