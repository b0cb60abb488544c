"""Routes about queries: submitted, explained, followed, stopped."""

import secrets

from sbon_node.api.routes.bodies import AcknowledgeBody, CancelMoveQuery, QueryUsageQuery, RowsQuery
from sbon_node.api.routes.route import ApiCall, EventStream, Plain, Route, WithHeaders
from sbon_node.api.server.event_stream import position_of
from sbon_node.queries.describing.lookup import UNANSWERED_HEADER, header_of
from sbon_protocol.api.delivery import Finished, Reader, Rows
from sbon_protocol.api.explanations import Explanation, PlacementExplanation
from sbon_protocol.api.moves import MoveCancelled, Moved, MoveRequest, Moving
from sbon_protocol.api.queries import Accepted, Progress, QueryInfo, QuerySpec, SinkInfo, SinkRequest, Submission
from sbon_protocol.api.usage import QueryUsage


async def queries(call: Plain) -> WithHeaders[list[QueryInfo]]:
    """Every query of the cluster, as far as the members that hold their records answer; a header names the others."""
    listing = await call.node.queries.lookup.all()
    return WithHeaders(list(listing), {UNANSWERED_HEADER: header_of(listing.unanswered)} if listing.unanswered else {})


def submit(call: ApiCall[None, Submission]) -> EventStream[Progress | Accepted]:
    """Submits a query: sends each step, and at last its acceptance. A refusal is a problem at once, or the last event."""
    return EventStream(call.node.submitting.submitter.submit(call.body))


async def query(call: Plain) -> QueryInfo:
    """A query: its plan, its operators' hosts and why, its links."""
    return await call.node.queries.lookup.query(call.path_value("id"))


async def stop_query(call: Plain) -> QueryInfo:
    """Stops a query; a query that has ended does not change."""
    return await call.node.queries.lookup.stop(call.path_value("id"))


def move_operator(call: ApiCall[None, MoveRequest]) -> EventStream[Moving | Moved]:
    """Moves an operator of a query to another node, while the query runs: sends each step, and at last that it runs there."""
    return EventStream(call.node.adaptation.requested.move(call.path_value("id"), call.body))


async def cancel_move(call: ApiCall[CancelMoveQuery, None]) -> MoveCancelled:
    """Gives up the move of an operator, which goes on where it is."""
    return await call.node.adaptation.requested.cancel(call.path_value("id"), call.query.operator)


async def query_usage(call: ApiCall[QueryUsageQuery, None]) -> QueryUsage:
    """The network usage of a query, against sending all rows of its sources to the consumer."""
    return await call.node.queries.lookup.usage(call.path_value("id"), call.query.after_ms)


async def explain_query(call: Plain) -> Explanation:
    """The plan of a query with its measurements."""
    return await call.node.queries.explainer.query(call.path_value("id"))


async def explain_query_placement(call: Plain) -> PlacementExplanation:
    """The current placement of a query, against the one that would be chosen now."""
    return await call.node.queries.placement_explainer.query(call.path_value("id"))


async def explain(call: ApiCall[None, QuerySpec]) -> Explanation:
    """The plan that a submission would get; changes nothing."""
    return await call.node.queries.explainer.plan(call.body)


async def explain_placement(call: ApiCall[None, QuerySpec]) -> PlacementExplanation:
    """The placement that a submission would get, and every other; changes nothing."""
    return await call.node.queries.placement_explainer.plan(call.body)


async def add_sink(call: ApiCall[None, SinkRequest]) -> SinkInfo:
    """Adds a sink to a query that runs; answered once it is open, and begins with the first row if all are still there."""
    return await call.node.queries.sinks.add(call.path_value("id"), call.body)


async def remove_sink(call: Plain) -> SinkInfo:
    """Removes a sink that was added to a query; what it has delivered stays."""
    return await call.node.queries.sinks.remove(call.path_value("id"), call.path_value("sink"))


def rows(call: ApiCall[RowsQuery, None]) -> EventStream[Reader | Rows | Finished]:
    """The rows of a query, from the frames after those the reader has; one reader of a sink at a time."""
    position = position_of(call.query.after or call.request.headers.get("Last-Event-ID", ""))
    reader = Reader(word=secrets.token_hex(16))
    return EventStream(
        call.node.queries.follows.follow(call.path_value("id"), position, call.query.sink, reader.word), position, reader
    )


async def acknowledge(call: ApiCall[None, AcknowledgeBody]) -> None:
    """All frames up to these numbers are written out, and may be forgotten upstream."""
    await call.node.queries.follows.acknowledge(call.path_value("id"), call.body.numbers, call.body.sink, call.body.reader)


UNANSWERED = "members that did not answer and may hold more queries, each with its state: `new-york=dead, paris=away`"

ROUTES = (
    Route("GET", "/v1/queries", queries, headers=((UNANSWERED_HEADER, UNANSWERED),)),
    Route("POST", "/v1/queries", submit, refusals=(403, 404, 409, 504, 507)),
    Route("GET", "/v1/queries/{id}", query),
    Route("DELETE", "/v1/queries/{id}", stop_query, uncut=True),
    Route("POST", "/v1/queries/{id}/move", move_operator, refusals=(404, 409, 503, 507)),
    Route("DELETE", "/v1/queries/{id}/move", cancel_move, uncut=True, refusals=(404, 409, 503)),
    Route("GET", "/v1/queries/{id}/usage", query_usage),
    Route("GET", "/v1/queries/{id}/explain", explain_query),
    Route("GET", "/v1/queries/{id}/explain/placement", explain_query_placement),
    Route("POST", "/v1/explain", explain, refusals=(404,)),
    Route("POST", "/v1/explain/placement", explain_placement, refusals=(404,)),
    Route("POST", "/v1/queries/{id}/sinks", add_sink, uncut=True, refusals=(403, 404, 409, 503, 504, 507)),
    Route("DELETE", "/v1/queries/{id}/sinks/{sink}", remove_sink, uncut=True, refusals=(404, 409, 503)),
    Route("GET", "/v1/queries/{id}/rows", rows, refusals=(404, 409, 503)),
    Route("POST", "/v1/queries/{id}/acknowledge", acknowledge, uncut=True, refusals=(403, 404, 409, 503)),
)
