"""A node's configuration: defaults < TOML file < ``SBON_*`` environment < flags, every value with its origin.

Most packages describe their settings in a ``settings.py``, the node's and the API's are beside this file; here they become the
sections of one file. A key is written ``section.key``: ``[streams] reconnect_s`` in the file, ``SBON_STREAMS_RECONNECT_S`` in the
environment, and ``--set streams.reconnect_s=1`` on the command line.
"""

import math
import re
import socket
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec

from sbon_node.adaptation.settings import PRESETS as ADAPTATION_PRESETS
from sbon_node.adaptation.settings import AdaptationSettings
from sbon_node.base.logging.output import LogSettings
from sbon_node.base.validation_messages import description_of
from sbon_node.config.api import ApiSettings
from sbon_node.config.node import EVERYWHERE, FILES, SECRETS
from sbon_node.config.node import NodeSettings as NodeSettings
from sbon_node.config.values import allowed, from_text
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.context import ControlSettings
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.settings import LOCAL_MASTER, EngineSettings
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.net.settings import NetSettings
from sbon_node.net.transport import Address
from sbon_node.overlay.directory.settings import DirectorySettings
from sbon_node.overlay.membership.settings import PRESETS as MEMBERSHIP_PRESETS
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.space.settings import SpaceSettings
from sbon_node.papers.ants.settings import AntSettings
from sbon_node.placement.settings import PlacementSettings
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.adaptation import BY_HOSTS
from sbon_protocol.errors import SbonError

DEPENDING = {
    "connectors.data_roots": f"{FILES} in node.data_dir",
    "connectors.own_hosts": "bind, advertise, api_bind and api_advertise of the node",
    "connectors.own_ports": "node.port and node.api_port",
    "connectors.secrets": f"{SECRETS} in node.data_dir",
}
"""Defaults that hang on other settings, in words."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All sections; a default ``Config()`` is valid but for the names that :func:`load` fills in."""

    node: NodeSettings = NodeSettings()
    log: LogSettings = LogSettings()
    api: ApiSettings = ApiSettings()
    net: NetSettings = NetSettings()
    space: SpaceSettings = SpaceSettings()
    membership: MembershipSettings = MembershipSettings()
    directory: DirectorySettings = DirectorySettings()
    control: ControlSettings = ControlSettings()
    query: QuerySettings = QuerySettings()
    streams: StreamSettings = StreamSettings()
    engine: EngineSettings = EngineSettings()
    migration: MigrationSettings = MigrationSettings()
    backups: BackupSettings = BackupSettings()
    connectors: ConnectorSettings = ConnectorSettings()
    placement: PlacementSettings = PlacementSettings()
    ants: AntSettings = AntSettings()
    adaptation: AdaptationSettings = AdaptationSettings()


PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"membership": MEMBERSHIP_PRESETS, "adaptation": ADAPTATION_PRESETS}  # type: ignore[dict-item]
"""The presets of sections that have some: values of unset knobs, by name."""


class Key(NamedTuple):
    """One setting of the struct ``settings``: ``type`` is the annotation its values are checked against."""

    section: str
    name: str
    settings: type[msgspec.Struct]
    type: Any
    default: Any

    def __str__(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def description(self) -> str:
        return description_of(self.settings, self.name)

    @property
    def variable(self) -> str:
        return f"SBON_{self.section}_{self.name}".upper()


class Given(NamedTuple):
    """A configured value; ``text`` values (environment, flags) are read by the key's type."""

    value: Any
    origin: str
    text: bool = False


class Loaded(NamedTuple):
    """The configuration, and for each ``section.key`` where its value comes from."""

    config: Config
    origins: dict[str, str]


def keys() -> dict[str, Key]:
    """Every knob there is, by ``section.key``, in the order of the sections."""
    found: dict[str, Key] = {}
    for section in msgspec.structs.fields(Config):
        settings = type(section.default)
        hints = get_type_hints(settings, include_extras=True)
        for field in msgspec.structs.fields(settings):
            default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
            key = Key(section.name, field.name, settings, hints[field.name], default)
            found[str(key)] = key
    return found


def load(
    file: Path | None = None, *, environ: Mapping[str, str] | None = None, flags: Mapping[str, Given] | None = None
) -> Loaded:
    """Composes the configuration; raises :class:`SbonError` ``bad-config`` whose details are one line for each bad value."""
    known = keys()
    problems: list[str] = []
    given: dict[str, Given] = {}
    for layer in (
        _of_file(file, known, problems),
        _of_environment(environ or {}, known, problems),
        _of_flags(flags or {}, known, problems),
    ):
        given.update(layer)
    _apply_preset(given)
    values: dict[str, dict[str, Any]] = {}
    for name, setting in given.items():
        key = known[name]
        value = _checked(key, setting, problems)
        values.setdefault(key.section, {})[key.name] = value
    if not problems:
        config = msgspec.convert(values, Config)
        config, derived = _completed(config, given)
        origins = {name: given[name].origin if name in given else "default" for name in known} | derived
        problems.extend(_contradictions(config, origins))
    if problems:
        message = problems[0] if len(problems) == 1 else f"{len(problems)} settings are wrong"
        raise SbonError("bad-config", message, details=tuple(problems), hint="see: sbon config show --origin")
    return Loaded(config, origins)


def _apply_preset(given: dict[str, Given]) -> None:
    """Unset knobs of a section with a preset get the preset's values."""
    for section, presets in PRESETS.items():
        chosen = given.get(f"{section}.preset")
        if chosen is not None and chosen.value in presets:
            for knob, value in presets[chosen.value].items():
                given.setdefault(f"{section}.{knob}", Given(value, f"preset {chosen.value}"))


def _checked(key: Key, given: Given, problems: list[str]) -> Any:
    try:
        value = from_text(str(given.value), key.type) if given.text else given.value
        value = msgspec.convert(value, key.type)
        if isinstance(value, float) and not math.isfinite(value):
            raise msgspec.ValidationError("not finite")
    except msgspec.ValidationError:
        problems.append(f"{given.origin}: {key} must be {allowed(key.type)}, not {given.value!r}")
        return None
    return value


def _of_file(file: Path | None, known: Mapping[str, Key], problems: list[str]) -> dict[str, Given]:
    if file is None:
        return {}
    try:
        text = file.read_text(encoding="utf-8")
        sections = tomllib.loads(text)
    except OSError as error:
        problems.append(f"{file}: cannot be read: {error.strerror}")
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{file}: not valid TOML: {error}")
        return {}
    found: dict[str, Given] = {}
    lines = _lines(text)
    for section, table in sections.items():
        entries: Iterator[tuple[str, Any]] = (
            ((f"{section}.{key}", value) for key, value in table.items()) if isinstance(table, dict) else iter([(section, table)])
        )
        for name, value in entries:
            line = lines.get(name) or lines.get(section)
            origin = f"{file}:{line}" if line else str(file)
            if name in known:
                found[name] = Given(value, origin)
            else:
                problems.append(f"{origin}: {_unknown(name, known)}")
    return found


def _of_environment(environ: Mapping[str, str], known: Mapping[str, Key], problems: list[str]) -> dict[str, Given]:
    """Environment variables of the sections. Other variables that begin with ``SBON_`` belong to other programs (Kubernetes sets
    some), unless a name looks like a misspelt section.
    """
    by_variable = {key.variable: name for name, key in known.items()}
    sections = {key.section for key in known.values()}
    found: dict[str, Given] = {}
    for variable in sorted(v for v in environ if v.startswith("SBON_")):
        if variable in by_variable:
            found[by_variable[variable]] = Given(environ[variable], variable, text=True)
            continue
        section, separator, _ = variable.removeprefix("SBON_").lower().partition("_")
        if separator and get_close_matches(section, sections, n=1, cutoff=0.8):
            near = get_close_matches(variable, by_variable, n=3, cutoff=0.75)
            problems.append(f"{variable}: no such setting{_or(near)}")
    return found


def _of_flags(flags: Mapping[str, Given], known: Mapping[str, Key], problems: list[str]) -> dict[str, Given]:
    for name, given in flags.items():
        if name not in known:
            problems.append(f"{given.origin}: {_unknown(name, known)}")
    return {name: given for name, given in flags.items() if name in known}


def _unknown(name: str, known: Mapping[str, Key]) -> str:
    near = get_close_matches(name, known, n=3, cutoff=0.6)
    if not near:  # the right key in the wrong section, or no section at all
        last = name.rpartition(".")[2]
        near = [str(key) for key in known.values() if key.name == last][:3]
    return f"no setting is called {name!r}{_or(near)}"


def _or(near: list[str]) -> str:
    return f" (did you mean {' or '.join(near)}?)" if near else " (see: sbon config show)"


def _lines(text: str) -> dict[str, int]:
    """Line numbers of ``section`` and ``section.key``, as far as plain TOML shows them."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([\w-]+)\s*\]", line):
            section = header[1]
            found.setdefault(section, number)
        elif key := re.match(r"\s*([\w.-]+)\s*=", line):
            found.setdefault(f"{section}.{key[1]}" if section else key[1], number)
    return found


def _completed(config: Config, given: Mapping[str, Given]) -> tuple[Config, dict[str, str]]:
    """Fills in what depends on the machine; returns the origins of what it filled in."""
    node, derived = config.node, {}
    if not node.name:
        host = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip(".-")[:63].strip(".-")
        node = msgspec.structs.replace(node, name=host or "node")
        derived["node.name"] = "host name"
    if not node.data_dir:
        node = msgspec.structs.replace(node, data_dir=str(Path.home() / ".local" / "state" / "sbon" / node.name))
        derived["node.data_dir"] = "home folder"
    connectors = config.connectors
    if "connectors.data_roots" not in given:
        connectors = msgspec.structs.replace(connectors, data_roots=(str(Path(node.data_dir) / FILES),))
        derived["connectors.data_roots"] = "data directory"
    if "connectors.secrets" not in given:
        connectors = msgspec.structs.replace(connectors, secrets=str(Path(node.data_dir) / SECRETS))
        derived["connectors.secrets"] = "data directory"
    if "connectors.own_hosts" not in given:
        connectors = msgspec.structs.replace(connectors, own_hosts=node.names)
        derived["connectors.own_hosts"] = "addresses"
    if "connectors.own_ports" not in given:
        derived["connectors.own_ports"] = "ports"
    ports = tuple(dict.fromkeys((node.port, node.api_port, *connectors.own_ports)))
    connectors = msgspec.structs.replace(connectors, own_ports=ports)
    return msgspec.structs.replace(config, node=node, connectors=connectors), derived


def _contradictions(config: Config, origins: Mapping[str, str]) -> Iterator[str]:
    """Values that are each allowed but not together."""
    node = config.node
    if node.port == node.api_port and node.bind == node.api_bind:
        yield f"{origins['node.api_port']}: node.api_port must differ from node.port, both are {node.port}"
    if node.bind in EVERYWHERE and not node.advertise:
        yield f"{origins['node.bind']}: node.advertise must be set where node.bind is {node.bind}: say what others reach"
    for address in node.join:
        try:
            Address.parse(address, field="node.join")
        except SbonError as error:
            yield f"{origins['node.join']}: node.join: {error.message} ({error.hint})"
    if config.streams.batch_span_bytes * 2 > config.streams.inbox_credit_bytes:
        origin = origins["streams.batch_span_bytes"]
        origin = origins["streams.inbox_credit_bytes"] if origin == "default" else origin
        yield f"{origin}: streams.batch_span_bytes must be at most half of streams.inbox_credit_bytes"
    if config.control.start_timeout_s <= config.engine.start_timeout_s:
        origin = origins["engine.start_timeout_s"]
        origin = origins["control.start_timeout_s"] if origin == "default" else origin
        yield (
            f"{origin}: control.start_timeout_s must be longer than engine.start_timeout_s, {config.engine.start_timeout_s:g}: "
            "queries would be refused while an engine may still start"
        )
    if config.adaptation.default in BY_HOSTS and not config.adaptation.most_moves:
        yield (
            f"{origins['adaptation.default']}: adaptation.default {config.adaptation.default} moves nothing while "
            "adaptation.most_moves is 0: raise that, or set off"
        )
    if not LOCAL_MASTER.match(config.engine.master):
        yield (
            f"{origins['engine.master']}: engine.master must be local, local[N] or local[*], not {config.engine.master!r}: "
            "operators run on the node's own machine; a Spark cluster is not supported yet"
        )
    if node.emulation and not Path(node.emulation).is_file():
        yield f"{origins['node.emulation']}: node.emulation: there is no file {node.emulation}"
