"""Failpoints in the processing of a batch and in work that several nodes do; a node may die between any two.

Production passes :func:`unobserved`. The simulation passes a function that may raise, and so kills the node exactly there.
"""

from collections.abc import Callable
from typing import Literal

Failpoint = Literal[
    "plan",  # offsets/b is stored, the batch is about to run
    "run",  # the batch has run, its output is about to be stored
    "outbox-write",  # the output's transaction has been stored
    "commit",  # commits/b is stored
    "publish",  # the batch has become visible
    "send",  # a frame has been handed to the network
    "receive",  # a frame has been taken from the network
    "acknowledge",  # an acknowledgement has been sent
    "trim",  # frames every subscriber acknowledged have been deleted
    "sink-write",  # a sink's bytes are written
    "position-write",  # a sink's or source's position is stored
    "ask",  # another node, or this node, is about to be called
    "answer",  # the call has returned, failed, or will not return
    "copy",  # a chunk of an operator's checkpoint has been sent to its next host, or stored there
    "freeze",  # an operator that moves is about to plan nothing more, or has come to rest
    "store",  # stored state has changed: a record, a hosted part, the catalogue, a peer's address
]

Failpoints = Callable[[Failpoint], None]


def unobserved(step: Failpoint) -> None:
    """Do nothing."""
