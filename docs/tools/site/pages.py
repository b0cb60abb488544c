"""Pages of the site: the documents that docs/index.md links, in its order, at their paths in the repository.

So links between documents work on the site and on a plain Git host. A document without a link in the index fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[3]
INDEX = PurePosixPath("docs/index.md")
LINK = re.compile(r"\]\(([^)#]+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation: a section for every heading of the index, with the documents under it."""
    config.nav = navigation((ROOT / INDEX).read_text(encoding="utf-8"))
    return config


def navigation(index: str) -> list[Any]:
    top: list[Any] = []
    section = top
    for line in index.splitlines():
        if line.startswith("## "):
            section = []
            top.append({line.removeprefix("## "): section})
        section += [resolved(INDEX, target) for target in LINK.findall(line)]
    return [top[0], str(INDEX), *top[1:]]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the documents, the files that they link (pictures, examples), and the files of the theme."""
    theme = [file for file in files if file.abs_src_path is None or not file.abs_src_path.startswith(config.docs_dir)]
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "protocol/SPEC.md"]
    documents += sorted((ROOT / "docs").rglob("*.md"))
    paths = [PurePosixPath(document.relative_to(ROOT).as_posix()) for document in documents]
    linked = {
        resolved(path, target)
        for path, document in zip(paths, documents, strict=True)
        for target in LINK.findall(document.read_text(encoding="utf-8"))
        if ":" not in target
    }
    every = sorted({*map(str, paths), *(path for path in linked if (ROOT / path).is_file())})
    return Files([*theme, *(File.generated(config, path, abs_src_path=str(ROOT / path)) for path in every)])


def resolved(document: PurePosixPath, target: str) -> str:
    """Return the repository path of a link's target. Raises :class:`PluginError` for a target outside the repository."""
    path = (ROOT / document.parent / target).resolve()
    if not path.is_relative_to(ROOT):
        raise PluginError(f"{document} links {target}, which is outside of the repository")
    return path.relative_to(ROOT).as_posix()
