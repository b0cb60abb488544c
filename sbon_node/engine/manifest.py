"""The content of a copied checkpoint, by which its receiver checks it."""

from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_node.engine.alignment import Cut

RelativePath = Annotated[str, Meta(max_length=512, pattern=r"^(?!/)(?!.*(^|/)\.\.(/|$)).+\Z")]


class CopiedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a checkpoint: its path in the checkpoint, its size, and its SHA-256 digest in hexadecimal."""

    path: RelativePath
    bytes: Annotated[int, Meta(ge=0)]
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a copy: the batch up to which it goes, the cut of that batch, and all its files."""

    batch: Annotated[int, Meta(ge=0)]
    cut: Cut
    files: tuple[CopiedFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)
