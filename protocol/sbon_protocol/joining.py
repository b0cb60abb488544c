"""Requests of membership over TCP: joining, and checks of members that do not answer datagrams (see SPEC.md, membership)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sbon_protocol.messages import Call, Line, Member, Message


class Members(Message, frozen=True):
    """A part of the answering node's table, itself first; ``more`` if names after the last remain."""

    members: Annotated[tuple[Member, ...], Meta(max_length=16_384)]
    more: bool = False


class SyncMembers(Call, frozen=True):
    """Request by which a node joins: it sends its own Member, and asks for members with names after ``after``.

    With ``replace`` it takes its name over from another data directory, whose node is lost.
    """

    members: Annotated[tuple[Member, ...], Meta(max_length=16_384)]
    joining: bool = False
    after: Line = ""
    replace: bool = False


class CheckMember(Call, frozen=True):
    """Check whether the receiver is alive.

    ``member`` is the caller's belief about it; the reply is the receiver's own Member alone.
    """

    member: Member
