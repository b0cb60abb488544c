"""Links and owners of queries that share operators."""

from collections.abc import Iterable, Mapping

from sbon_protocol.api.queries import LinkInfo, QueryInfo


def links_once(infos: Iterable[QueryInfo]) -> list[LinkInfo]:
    """Return all links of the queries once each: queries that share an operator have the links into it in common."""
    found: dict[tuple[str, str], LinkInfo] = {}
    for info in infos:
        for link in info.links:
            known = found.get(key := (link.stream, link.target))
            if known is None or link.bytes > known.bytes:  # A query that ends sooner has seen less of it.
                found[key] = link
    return list(found.values())


def owners(accepted: Mapping[str, QueryInfo]) -> list[str]:
    """Return the queries of which others have been accepted as readers of their operators, by name."""
    names = {info.uid: name for name, info in accepted.items()}
    return sorted({names[one.id.rpartition(".")[0]] for info in accepted.values() for one in info.shared})
