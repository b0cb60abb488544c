"""RunningComputation of a running operator to the planner of another query."""

from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_protocol.api.operators import Computation

MAX_OFFERED_INPUTS = 1024


class RunningComputation(msgspec.Struct, frozen=True, kw_only=True):
    """A running operator as its host describes it, and the signatures of its inputs' streams in their order.

    The planner derives the operator's own signature from these. It parses the fragment itself and believes no other statement
    about it.
    """

    computation: Computation
    inputs: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=128)], ...], Meta(max_length=MAX_OFFERED_INPUTS)]
