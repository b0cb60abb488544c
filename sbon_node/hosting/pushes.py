"""Rows posted to a stream: passed to its source on this node, or refused with the source's node."""

from __future__ import annotations

from sbon_node.catalogue.catalogue import Catalogue
from sbon_node.connectors.sources.push import Post, Pushable, Pushed
from sbon_node.connectors.sources.runner import SourceRunner
from sbon_node.errors import SbonError
from sbon_node.hosting.sources import SourceHost
from sbon_node.model.states import source_states
from sbon_node.workflow.context import Context

CONNECTOR = "http"


class Pushes:
    """Accepts posts at this node."""

    def __init__(self, context: Context, catalogue: Catalogue, sources: SourceHost) -> None:
        self._context, self._catalogue, self._sources = context, catalogue, sources

    async def push(self, stream: str, source: str, post: Post) -> Pushed:
        """Pass a post to its source; return once all of it is durable.

        Raises :class:`SbonError`: ``unknown-stream``, ``unknown-source``, ``source-elsewhere``, ``ambiguous-source``;
        ``source-behind``, ``source-paused``, ``source-stopped`` if the client should retry later; and the source's own refusals.
        """
        runner = self._runner(stream, source)
        name = runner.declaration.id
        if runner.state == source_states.PAUSED:
            hint = "post it again a little later"
            raise SbonError("source-paused", f"the source is paused: {runner.reason}", where=name, hint=hint)
        if runner.state != source_states.RUNNING:
            raise SbonError("source-stopped", f"the source is {runner.state} {runner.reason}".strip(), where=name)
        if self._context.outbox.pressure(name):
            hint = "post it again later"
            raise SbonError("source-behind", "those who read the stream are too far behind", where=name, hint=hint)
        assert isinstance(runner.source, Pushable)
        return await runner.source.push(post)

    def _runner(self, stream: str, source: str) -> SourceRunner:
        entry = self._catalogue.entry(stream)
        named = [declared for declared in entry.sources if source in ("", declared.name)]
        here = {declared.name: runner for declared in named if (runner := self._sources.runner(declared.id)) is not None}
        taking = {name: runner for name, runner in here.items() if isinstance(runner.source, Pushable)}
        if len(taking) == 1:
            return next(iter(taking.values()))
        if taking:
            hint = f"choose with source={'|'.join(sorted(taking))}"
            raise SbonError("ambiguous-source", f"{stream} has several sources here that take rows", where="source", hint=hint)
        known = [declared for declared in named if declared.connector == CONNECTOR]
        if any(declared.node == self._context.name for declared in known):
            hint = "post it again a little later"
            raise SbonError("source-stopped", "the source does not run yet", where="source", hint=hint)
        if not known:
            which = f"no source {source!r}" if source else "no source"
            hint = f"sbon stream attach {stream} --connector {CONNECTOR}"
            raise SbonError("unknown-source", f"{stream} has {which} that takes rows", where="source", hint=hint)
        first = known[0]
        member = self._context.membership.get(first.node)
        at = f" at http://{member.api}" if member is not None else ""
        raise SbonError(
            "source-elsewhere",
            f"the source {first.name!r} of {stream} that takes rows is at {first.node}",
            where="source",
            hint=f"post to that node{at}, or attach a source here: sbon stream attach {stream} --connector {CONNECTOR}",
        )
