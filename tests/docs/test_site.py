"""The documents as a site: built strictly, in the order of their index, searched and looked at in a real browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.addresses import own_host
from tests.browsers import opened_browser
from tests.docs.reading import DOCUMENTS, ROOT, text_of

PATIENCE_MS = 120_000.0
PARTS = ("docs", "protocol/SPEC.md", "examples", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def built(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "-f",
        str(root / "docs" / "tools" / "site" / "mkdocs.yml"),
        "-d",
        str(out),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = built(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer((own_host(40), 18000), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{own_host(40)}:18000"
        server.shutdown()


def page_of(document: Path) -> str:
    path = document.relative_to(ROOT).with_suffix(".html").as_posix()
    return "index.html" if path == "README.html" else path


def test_every_document_is_a_page_in_the_order_of_the_index(site: Path) -> None:
    index = ROOT / "docs" / "index.md"
    linked = [(index.parent / target).resolve() for target in re.findall(r"\]\(([^)]+)\)", text_of(index))]
    expected = [page_of(document) for document in (linked[0], index, *linked[1:])]
    assert sorted(expected) == sorted(map(page_of, DOCUMENTS))
    html = (site / "index.html").read_text(encoding="utf-8")
    navigation = re.search(r'<nav class="md-nav md-nav--primary.*?</nav>\s*</div>', html, re.DOTALL)
    assert navigation is not None
    links = re.findall(r'<a href="([^"#]+)" class="md-nav__link', navigation[0])
    assert list(dict.fromkeys(links)) == expected


@pytest.mark.one_part_per_commit("kinds of dead links", parts=12)
@pytest.mark.parametrize("broken", ["[nowhere](nowhere.md)", "[no such place](cli.md#no-such-place)", "![no picture](none.svg)"])
def test_a_dead_link_fails_the_build(broken: str, tmp_path: Path) -> None:
    for part in PARTS:
        target = tmp_path / part
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, target)
    with (tmp_path / "docs" / "concepts.md").open("a") as text:
        text.write(f"\n{broken}\n")
    done = built(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert broken.split("(")[1].rstrip(")").split("#")[-1] in done.stderr


def test_pages_load_nothing_from_elsewhere_and_are_found_by_search(address: str) -> None:
    asked: set[str] = set()
    with opened_browser() as browser:
        page = browser.new_page(color_scheme="dark")
        page.on("request", lambda request: asked.add(urlsplit(request.url).netloc if request.url[:4] == "http" else ""))
        failed: list[str] = []
        page.on("pageerror", lambda error: failed.append(str(error)))
        for document in ("index.html", "docs/concepts.html", "docs/figures/index.html"):
            page.goto(f"{address}/{document}", wait_until="networkidle")
            assert page.evaluate("document.body.getAttribute('data-md-color-scheme')") == "slate"
            broken = page.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.src)")
            assert broken == []
        page.click("input[name=query]")
        page.locator("input[name=query]").press_sequentially("cost space")
        page.wait_for_selector(".md-search-result__item a[href*='docs/concepts.html']", state="attached", timeout=PATIENCE_MS)
    assert asked - {""} == {urlsplit(address).netloc}
    assert failed == []
