"""Names under which operators and sinks subscribe to streams, and those of followers.

An operator subscribes once for each input, as ``<operator>#<position>``, a sink by its id. A follower, which is to go on in place
of an operator at another node, reads the same frames as ``<operator>#<position>~<attempt>``. Its subscription lasts as long as
its connection: the frames that the operator's next batches need are kept for the present host anyway, and a follower that has
lost its place is given up. Ids and attempts have neither mark.
"""

from sbon_protocol.api.query_ids import uid_of

BACKUP = "backup"
"""The attempt of a hot operator's follower at its backup."""
_POSITION = "#"
_ATTEMPT = "~"


def input_of(operator: str, position: int) -> str:
    """Return the subscriber of an operator's input."""
    return f"{operator}{_POSITION}{position}"


def follower_of(subscriber: str, attempt: str) -> str:
    """Return the name under which an attempt to move the subscriber reads."""
    return f"{subscriber}{_ATTEMPT}{attempt}"


def is_follower(subscriber: str) -> bool:
    return _ATTEMPT in subscriber


def followed_by(follower: str) -> str:
    """Return the subscriber that a follower follows; any other subscriber itself."""
    return follower.partition(_ATTEMPT)[0]


def attempt_of(follower: str) -> str:
    """Return the attempt of a follower; empty for other subscribers."""
    return follower.partition(_ATTEMPT)[2]


def query_of(subscriber: str) -> str:
    """Return the uid of the query that reads under this name."""
    return uid_of(component_of(subscriber))


def component_of(subscriber: str) -> str:
    """Return the operator or sink that reads under this name."""
    return followed_by(subscriber).partition(_POSITION)[0]
