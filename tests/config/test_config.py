"""Configuration: four layers, origins, and one clear line for whatever is wrong."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
import structlog

from sbon_node.base.logging import output
from sbon_node.base.logging.output import LogSettings
from sbon_node.config.config import Config, Given, keys, load
from sbon_node.net.names import is_loopback
from sbon_node.overlay.membership.settings import preset
from sbon_protocol.errors import SbonError


def write(folder: Path, text: str) -> Path:
    path = folder / "sbon.toml"
    path.write_text(text, encoding="utf-8")
    return path


def flag(name: str, value: str) -> dict[str, Given]:
    return {name: Given(value, f"--set {name}", text=True)}


def test_each_layer_wins_over_the_one_before(tmp_path: Path) -> None:
    file = write(tmp_path, "[node]\nname = 'a'\nport = 1001\napi_port = 1002\n[streams]\nreconnect_s = 3\n")
    environ = {"SBON_NODE_PORT": "2001", "SBON_NODE_API_PORT": "2002", "SBON_NODE_JOIN": "x:1, y:2"}
    config, origins = load(file, environ=environ, flags=flag("node.api_port", "3002"))

    assert (config.node.name, config.node.port, config.node.api_port) == ("a", 1001 + 1000, 3002)
    assert config.streams.reconnect_s == 3.0
    assert config.node.join == ("x:1", "y:2")
    assert config.node.cluster == Config().node.cluster
    assert [origins[k] for k in ("node.name", "node.port", "node.api_port", "streams.reconnect_s", "node.cluster")] == [
        f"{file}:2",
        "SBON_NODE_PORT",
        "--set node.api_port",
        f"{file}:6",
        "default",
    ]


def test_every_knob_is_explained_and_its_default_is_allowed() -> None:
    config, origins = load(flags=flag("node.name", "n"))
    assert set(origins) == set(keys())
    assert not [str(key) for key in keys().values() if not key.description]
    for key in keys().values():
        assert getattr(getattr(config, key.section), key.name) is not None


@pytest.mark.parametrize(
    "flags, expected",
    [
        ({}, "127.0.0.1:7480"),
        ({"api_port": "7481"}, "127.0.0.1:7481"),
        ({"bind": "0.0.0.0", "advertise": "london.example.org"}, "127.0.0.1:7480"),
        ({"bind": "0.0.0.0", "advertise": "london.example.org", "api_bind": "0.0.0.0"}, "london.example.org:7480"),
        ({"bind": "10.0.0.5", "api_bind": "::"}, "10.0.0.5:7480"),
        ({"bind": "10.0.0.5", "api_bind": "192.168.1.5"}, "192.168.1.5:7480"),
        ({"bind": "10.0.0.5", "api_bind": "0.0.0.0", "api_advertise": "api.example.org"}, "api.example.org:7480"),
    ],
)
def test_the_api_is_announced_where_it_listens(flags: dict[str, str], expected: str) -> None:
    given = {key: value for name, text in flags.items() for key, value in flag(f"node.{name}", text).items()}
    assert str(load(flags=given).config.node.announced_api) == expected


@pytest.mark.parametrize(
    "host, loopback",
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.5", False),
        ("::", False),
        ("london.example.org", False),
    ],
)
def test_which_addresses_only_this_machine_reaches(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_name_and_data_directory_default_to_the_machines() -> None:
    config, origins = load()
    assert config.node.name
    assert config.node.data_dir.endswith(config.node.name)
    assert origins["node.name"] == "host name"


@pytest.mark.parametrize(
    "flags, expected, origin",
    [
        ({}, ("/var/sbon/files",), "data directory"),
        (flag("connectors.data_roots", "/srv,/tmp"), ("/srv", "/tmp"), "--set connectors.data_roots"),
        (flag("connectors.data_roots", "/"), ("/",), "--set connectors.data_roots"),
    ],
)
def test_files_lie_in_the_data_directory_where_nothing_else_is_said(
    flags: dict[str, Given], expected: tuple[str, ...], origin: str
) -> None:
    config, origins = load(flags={**flag("node.data_dir", "/var/sbon"), **flags})
    assert (config.connectors.data_roots, origins["connectors.data_roots"]) == (expected, origin)


def test_a_nodes_own_ports_are_refused_to_connectors_whatever_is_said() -> None:
    given = {**flag("node.port", "7001"), **flag("connectors.endpoints", "*,127.0.0.0/8")}
    assert load(flags=given)[0].connectors.own_ports == (7001, 7480)
    config, origins = load(flags={**given, **flag("connectors.own_ports", "9000,7480")})
    assert config.connectors.own_ports == (7001, 7480, 9000)
    assert origins["connectors.own_ports"] == "--set connectors.own_ports"


BAD_FILES = [
    ("[node]\nport = 70000", ":2: node.port must be a whole number from 1 to 65535, not 70000"),
    ("[node]\nport = '7400'", ":2: node.port must be a whole number from 1 to 65535, not '7400'"),
    ("[node]\nport = true", ":2: node.port must be a whole number from 1 to 65535, not True"),
    ("[node]\nname = 'Not A Name'", "node.name must be text (at most 63 characters, of the form"),
    ("[node]\njoin = 'a:1'", "node.join must be a list of texts (at most 64), not 'a:1'"),
    ("[node]\njoin = ['nonsense']", "node.join: 'nonsense' is not host:port"),
    ("[node]\nprot = 7400", ":2: no setting is called 'node.prot' (did you mean node.port"),
    ("[nodes]\nport = 7400", ":2: no setting is called 'nodes.port' (did you mean node.port"),
    ("port = 7400", ":1: no setting is called 'port' (did you mean node.port?)"),
    ("node = 3", ":1: no setting is called 'node'"),
    ("[streams]\nreconnect_s = nan", "streams.reconnect_s must be a number above 0 and at most 3600, not nan"),
    ("[streams]\nreconnect_s = 0", "streams.reconnect_s must be a number above 0"),
    ("[log]\nlevel = 'loud'", "log.level must be one of debug, error, info, warning, not 'loud'"),
    ("[log\n", "not valid TOML"),
    ("[node]\nport = 7480", "node.api_port must differ from node.port, both are 7480"),
    ("[node]\nbind = '0.0.0.0'", ":2: node.advertise must be set where node.bind is 0.0.0.0"),
    ("[node]\nemulation = '/nowhere/rtt.json'", ":2: node.emulation: there is no file /nowhere/rtt.json"),
]


@pytest.mark.parametrize("text, expected", BAD_FILES)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(SbonError) as refused:
        load(file)
    assert refused.value.code == "bad-config"
    assert refused.value.message.startswith(str(file)) or "default: " in refused.value.message
    assert expected in refused.value.message
    assert "\n" not in refused.value.message


BAD_VARIABLES = [
    ("SBON_NODE_PORT", "http", "SBON_NODE_PORT: node.port must be a whole number from 1 to 65535, not 'http'"),
    ("SBON_NODE_PROT", "1", "SBON_NODE_PROT: no such setting (did you mean SBON_NODE_PORT"),
    ("SBON_STRAEMS_RECONNECT_S", "1", "SBON_STRAEMS_RECONNECT_S: no such setting (did you mean SBON_STREAMS_RECONNECT_S"),
    ("SBON_STREAMS_RECONNECT_S", "inf", "SBON_STREAMS_RECONNECT_S: streams.reconnect_s must be a number above 0"),
]


@pytest.mark.parametrize("variable, value, expected", BAD_VARIABLES)
def test_a_bad_variable_is_refused_by_its_name(variable: str, value: str, expected: str) -> None:
    with pytest.raises(SbonError) as refused:
        load(environ={variable: value})
    assert expected in refused.value.message


@pytest.mark.parametrize("variable", ["SBON_API", "SBON_CONFIG", "SBON_SERVICE_HOST", "PATH"])
def test_variables_of_others_are_left_alone(variable: str) -> None:
    assert load(environ={variable: "whatever"}).config == load().config


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, "[node]\nport = 0\nprot = 1\n")
    with pytest.raises(SbonError) as refused:
        load(file, environ={"SBON_LOG_LEVEL": "x"}, flags=flag("log.colour", "red"))
    assert refused.value.message == "4 settings are wrong"
    assert [line.partition(": ")[0] for line in refused.value.details] == [
        f"{file}:3",
        "--set log.colour",
        f"{file}:2",
        "SBON_LOG_LEVEL",
    ]


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SbonError, match=r"none\.toml: cannot be read: No such file"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize("text, value", [("true", True), ("FALSE", False)])
def test_truth_is_read_from_text(text: str, value: bool) -> None:
    from sbon_node.config.values import from_text

    assert from_text(text, bool) is value


def test_logs_are_json_lines_without_a_terminal() -> None:
    out = StringIO()
    output.configure(LogSettings(level="info"), node="a", stream=out)
    structlog.get_logger().info("link-up", stream="s", rtt_ms=1.5)
    structlog.get_logger().debug("not-told")
    try:
        raise ValueError("bad")
    except ValueError as error:
        structlog.get_logger().error("task-failed", exc_info=error)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(x["event"], x["level"], x["node"]) for x in lines] == [("link-up", "info", "a"), ("task-failed", "error", "a")]
    assert lines[0]["rtt_ms"] == 1.5
    assert "ValueError: bad" in lines[1]["exception"]


def test_logs_are_words_where_asked_for() -> None:
    out = StringIO()
    output.configure(LogSettings(format="console"), stream=out)
    structlog.get_logger().warning("peer-lost", peer="b")
    assert "peer-lost" in out.getvalue()
    assert not out.getvalue().startswith("{")


def test_a_preset_of_membership_sets_the_settings_that_are_not_given() -> None:
    environ = {"SBON_MEMBERSHIP_PRESET": "lan", "SBON_MEMBERSHIP_INSIST_S": "0.5", "SBON_MEMBERSHIP_TAGS": "zone=eu-1,rack=7"}
    config, origins = load(environ=environ)
    assert (config.membership.probe_timeout_s, config.membership.insist_s) == (0.15, 0.5)
    assert origins["membership.probe_timeout_s"] == "preset lan"
    assert origins["membership.insist_s"] == "SBON_MEMBERSHIP_INSIST_S"
    assert config.membership.tag_words == {"zone": "eu-1", "rack": "7"}
    assert preset("lan", insist_s=0.5, tags=("zone=eu-1", "rack=7")) == config.membership
    assert load()[0].membership == preset("wan")


@pytest.mark.parametrize("value", ["zone", "=x", "a=b=c", "k=" + 33 * "v", ",".join(f"k{i}=v" for i in range(9))])
def test_tags_are_a_few_short_words(value: str) -> None:
    with pytest.raises(SbonError, match=r"membership\.tags"):
        load(environ={"SBON_MEMBERSHIP_TAGS": value})


@pytest.mark.parametrize("master", ["spark://10.0.0.1:7077", "k8s://x", "yarn", "local-cluster[1,1,1024]", "local[0]", ""])
def test_a_spark_cluster_is_refused_until_it_is_built(master: str) -> None:
    with pytest.raises(SbonError) as refusal:
        load(flags={**flag("node.name", "n"), **flag("engine.master", master)})
    assert refusal.value.code == "bad-config"
    assert "engine.master must be local, local[N] or local[*]" in refusal.value.message
    assert "a Spark cluster is not supported yet" in refusal.value.message


@pytest.mark.parametrize("master", ["local", "local[1]", "local[16]", "local[*]"])
def test_spark_on_this_machine_is_not(master: str) -> None:
    assert load(flags={**flag("node.name", "n"), **flag("engine.master", master)}).config.engine.master == master


@pytest.mark.parametrize("adapt", ["off", "local", "ants", "full"])
def test_each_adaptation_may_be_the_default(adapt: str) -> None:
    assert load(flags={**flag("node.name", "n"), **flag("adaptation.default", adapt)}).config.adaptation.default == adapt


@pytest.mark.parametrize("durability", ["local", "replicated", "hot"])
def test_each_durability_may_be_the_default(durability: str) -> None:
    loaded = load(flags={**flag("node.name", "n"), **flag("query.durability", durability)})
    assert loaded.config.query.durability == durability


def test_an_unknown_durability_is_refused() -> None:
    with pytest.raises(SbonError) as refusal:
        load(flags={**flag("node.name", "n"), **flag("query.durability", "warm")})
    assert refusal.value.code == "bad-config"
    assert "query.durability must be one of hot, local, replicated, not 'warm'" in refusal.value.message


@pytest.mark.parametrize("adapt, refused", [("local", True), ("full", True), ("ants", False), ("off", False)])
def test_hosts_that_may_move_nothing_are_no_default(adapt: str, refused: bool) -> None:
    flags = {**flag("node.name", "n"), **flag("adaptation.default", adapt), **flag("adaptation.most_moves", "0")}
    if not refused:
        assert load(flags=flags).config.adaptation.most_moves == 0
        return
    with pytest.raises(SbonError) as refusal:
        load(flags=flags)
    assert f"--set adaptation.default: adaptation.default {adapt} moves nothing" in refusal.value.message


@pytest.mark.parametrize("control_s, engine_s, refused", [("180", "180", True), ("240", "300", True), ("400", "300", False)])
def test_a_query_waits_longer_for_an_operator_than_an_engine_has_to_start(control_s: str, engine_s: str, refused: bool) -> None:
    flags = {**flag("control.start_timeout_s", control_s), **flag("engine.start_timeout_s", engine_s)}
    if not refused:
        assert load(flags=flags).config.control.start_timeout_s == float(control_s)
        return
    with pytest.raises(SbonError) as refusal:
        load(flags=flags)
    expected = f"--set engine.start_timeout_s: control.start_timeout_s must be longer than engine.start_timeout_s, {engine_s}: "
    assert refusal.value.message.startswith(expected)
