"""Knobs of the node itself: its name, its addresses, and the nodes to join."""

from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_node.net.transport import Address
from sbon_protocol.base import Name

Host = Annotated[str, Meta(max_length=253)]
Port = Annotated[int, Meta(ge=1, le=65_535)]

EVERYWHERE = ("0.0.0.0", "::")
"""Bind addresses that stand for all addresses of the machine."""
FILES = "files"
"""Folder of a data directory for the files of sources and sinks, by default."""

SECRETS = "secrets"
"""The folder of a data directory for secrets that sources and sinks refer to."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node's name, its addresses, and the nodes to join."""

    name: Annotated[str, Meta(max_length=63, pattern=r"^([a-z0-9]([a-z0-9._-]*[a-z0-9])?)?$")] = ""
    """this node's name, unique in its cluster, for ever; empty takes the host's name"""
    cluster: Name = "sbon"
    """nodes of other clusters are refused; one word for all nodes of yours"""
    data_dir: str = ""
    """folder of identity, streams and checkpoints; empty takes ~/.local/state/sbon/<name>"""
    bind: Annotated[Host, Meta(min_length=1)] = "127.0.0.1"
    """address to listen at for other nodes; 0.0.0.0 for all of this machine's"""
    port: Port = 7400
    """UDP and TCP port for other nodes"""
    advertise: Host = ""
    """address that other nodes use, if it is not bind: behind a NAT, or with 0.0.0.0"""
    api_bind: Annotated[Host, Meta(min_length=1)] = "127.0.0.1"
    """address of the HTTP API, which has no passwords: everyone who reaches it controls the node; on loopback, it serves
    programs of this machine alone"""
    api_advertise: Host = ""
    """address of the HTTP API that others use, if it is not api_bind, or not advertise with 0.0.0.0"""
    api_port: Port = 7480
    """TCP port of the HTTP API"""
    join: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    """addresses host:port of nodes to join at start; any live one will do"""
    emulation: str = ""
    """file of round-trip times between nodes, to live in a wide area on one machine, read again when it changes; empty for
    none"""
    drain_on_stop: bool = False
    """whether the node, when it is to stop, first moves its operators away and leaves, as sbon drain does; with sources or
    sinks it stays a member, and is away until its next start"""

    @property
    def listening(self) -> Address:
        return Address(self.bind, self.port)

    @property
    def announced(self) -> Address:
        """Where others reach this node."""
        return Address(self.advertise or self.bind, self.port)

    @property
    def announced_api(self) -> Address:
        """The advertised address of the HTTP API; on loopback, only this machine reaches it."""
        everywhere = self.api_bind in EVERYWHERE
        return Address(self.api_advertise or (self.announced.host if everywhere else self.api_bind), self.api_port)

    @property
    def names(self) -> tuple[str, ...]:
        """Hosts this node listens at and is announced by, those of its API among them."""
        given = (self.bind, self.advertise, self.api_bind, self.api_advertise)
        return tuple(dict.fromkeys(host for host in given if host and host not in EVERYWHERE))

    @property
    def seeds(self) -> tuple[Address, ...]:
        return tuple(Address.parse(text, field="node.join") for text in self.join)
