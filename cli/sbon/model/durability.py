"""Backups of operators, and what a query would lose with each of its nodes."""

from __future__ import annotations

from .shown import Shown


class BackupInfo(Shown, frozen=True, kw_only=True):
    """The backup of a replicated operator: its ``state``, and the newest batch that ``node`` has, since ``age_s``.

    ``follows`` says whether a follower of a hot operator runs there (None for others), ``follows_not`` why none does, and
    ``recovered`` how the operator's host took it over as its backup, if it has.
    """

    state: str
    node: str = ""
    batch: int | None = None
    age_s: float | None = None
    reason: str = ""
    follows: bool | None = None
    follows_not: str = ""
    recovered: str = ""


class Loss(Shown, frozen=True, kw_only=True):
    """A ``part`` of a query (operator, source, sink or record) that is lost with the disk of ``node``, or already ``lost``."""

    node: str
    part: str
    name: str
    why: str
    lost: bool = False


class Survival(Shown, frozen=True, kw_only=True):
    """Whether a running query survives the loss of any one node, what it would lose, and both in a sentence, ``text``."""

    any_node: bool
    losses: tuple[Loss, ...] = ()
    text: str = ""
