"""Folders of this node's operators, and the removal of those whose deletion a crash interrupted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Container, Iterable
from functools import partial
from pathlib import Path

import structlog

from sbon_node.context import Context, until_passed
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

ORPHANED_S = 60.0
"""Seconds after a start in which an engine process of the earlier daemon may still write to the checkpoints of operators that
have been deleted since; longer than a new one waits for their lock."""


def spill_of(context: Context, operator: str) -> Path:
    return context.data_dir / "spill" / operator


def checkpoint_of(context: Context, operator: str) -> Path:
    return context.data_dir / "operators" / operator


def copies_of(context: Context, attempt: str) -> Path:
    """Return the folder of what another node fetches from here in an attempt to move an operator."""
    return context.data_dir / "copies" / attempt


def copy_to(context: Context, operator: str) -> Path:
    """Return the copy of a checkpoint that comes here."""
    return context.data_dir / "copies" / f"{operator}~"


async def delete_copies(context: Context, attempt: str) -> None:
    """Delete :func:`copies_of` the attempt, also where the disk refuses that at first."""

    def waits(error: SbonError) -> None:
        log.warning("copy-not-deleted", attempt=attempt, code=error.code, reason=str(error))

    delete = partial(shutil.rmtree, copies_of(context, attempt), ignore_errors=True)
    await until_passed(context, partial(context.executor, delete), waits)


def sweep(context: Context, is_kept: Callable[[str], bool], connected: Container[str]) -> None:
    """Delete streams and checkpoints of operators that are not kept, and spilled frames of those not connected."""
    for stream in context.outbox.streams():
        if not is_source(stream) and not is_kept(stream):
            context.outbox.drop_stream(stream)
    folder = checkpoint_of(context, "")
    for checkpoint in sorted(folder.iterdir()) if folder.is_dir() else ():
        if checkpoint.is_dir() and not is_kept(checkpoint.name):
            shutil.rmtree(checkpoint, ignore_errors=True)
    folder = spill_of(context, "")
    for spilled in sorted(folder.iterdir()) if folder.is_dir() else ():
        if spilled.name not in connected:
            shutil.rmtree(spilled, ignore_errors=True)


async def sweep_again(context: Context, stored: Iterable[str], is_kept: Callable[[str], bool]) -> None:
    """Delete what an orphaned engine process has written for those of the operators ``stored`` at the start that are gone."""
    await context.clock.sleep(ORPHANED_S)
    for operator in stored:
        if not is_kept(operator):
            shutil.rmtree(checkpoint_of(context, operator), ignore_errors=True)
