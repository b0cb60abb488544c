"""Settings of sources and sinks, each with the reason to change it."""

from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_node.connectors.access.roots import ANYWHERE
from sbon_node.model.samples import MAX_SAMPLE_ROWS

KIB = 1024
MIB = 1024 * KIB


class ConnectorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of reading, framing, dead letters and delivering."""

    data_roots: Annotated[tuple[str, ...], Meta(max_length=256)] = ANYWHERE
    """folders that must contain the files of sources and sinks, since any peer and any user of the API may name one; / for
    all; by default the folder files in the data directory"""
    endpoints: Annotated[tuple[str, ...], Meta(max_length=256)] = ("*",)
    """hosts to which sources and sinks may connect, since any peer and any user of the API may name one: names, patterns of
    names or networks, each with a port or without (db.example.org:5432, *.example.org, 10.0.0.0/8); by default any except
    loopback, link-local and this machine's own addresses, which need an entry that names them alone"""
    own_hosts: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    """names and addresses of this machine, as others reach it; by default its listening and advertised addresses"""
    own_ports: Annotated[tuple[Annotated[int, Meta(ge=1, le=65_535)], ...], Meta(max_length=64)] = ()
    """ports of nodes on this machine, which no source or sink reaches, whatever endpoints allows; node.port and node.api_port
    always belong to them"""
    cleartext: Annotated[tuple[str, ...], Meta(max_length=256)] = ()
    """hosts, each with a port or without, to which passwords may go without TLS; by default loopback alone"""
    secrets: Annotated[str, Meta(max_length=4096)] = ""
    """folder of secrets, one in each file, which options of sources and sinks refer to as file:NAME; by default the folder
    secrets in the data directory"""
    passwords: Annotated[str, Meta(max_length=4096)] = ""
    """file of passwords by host and user in the format of netrc, for sources and sinks whose URLs have none"""
    block_bytes: Annotated[int, Meta(ge=KIB, le=4 * MIB)] = 256 * KIB
    """bytes a file source reads and parses in one step; lower it if probes are answered late while files are read, raise it
    for faster reading"""
    max_record_bytes: Annotated[int, Meta(ge=64, le=16 * MIB)] = MIB
    """longest line, or record of several lines, of a text file in bytes; a longer one is a bad row"""
    parquet_bytes: Annotated[int, Meta(ge=64 * KIB, le=2**34)] = 64 * MIB
    """largest sum in bytes of one page and the dictionary of each column of a Parquet file, unpacked, and of the rows read at
    once; reading takes a few times as much memory; files with larger pages are refused"""
    sample_rows: Annotated[int, Meta(ge=0, le=MAX_SAMPLE_ROWS)] = MAX_SAMPLE_ROWS
    """rows of each source that its node keeps, and gives to nodes that plan queries, to estimate from; 0 keeps the values of
    rows from plans, which are then estimated without them"""
    linger_s: Annotated[float, Meta(ge=0, le=60)] = 0.05
    """seconds a row may wait for others to share its frame; lower it for less delay"""
    dead_letter_max_bytes: Annotated[int, Meta(ge=0, le=2**40)] = 16 * MIB
    """largest dead-letter file in bytes, of a source, sink or operator; more is only counted; 0 keeps none"""
    dead_letters_max_bytes: Annotated[int, Meta(ge=0, le=2**42)] = 256 * MIB
    """largest sum in bytes of all dead-letter files of a node; beyond it the files written longest ago are deleted when an
    operator ends and when the node starts, except those of running operators"""
    dead_letter_text_bytes: Annotated[int, Meta(ge=0, le=MIB)] = 4 * KIB
    """characters of a bad row kept in the dead-letter file; the rest is cut off"""
    retry_s: Annotated[float, Meta(gt=0, le=3600)] = 0.5
    """seconds before a source or sink tries again after a temporary error, such as a full disk or an unreachable host;
    doubles up to the maximum"""
    retry_max_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """longest pause in seconds between such tries"""
    push_max_bytes: Annotated[int, Meta(ge=KIB, le=256 * MIB)] = 8 * MIB
    """largest body in bytes of rows posted to an http source; larger ones are refused"""
    push_buffer_bytes: Annotated[int, Meta(ge=KIB, le=2**34)] = 64 * MIB
    """bytes of posts an http source holds in memory until they are stored; beyond it posts are refused"""
    push_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    """seconds in which the body of a post must arrive; raise it for slow uplinks"""
