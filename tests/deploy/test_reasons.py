"""Each reason that ``sbon query show`` gives has a metric and an alert, and the alert fires for it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sbon_node.queries.describing.waits import KINDS
from tests.deploy.test_manifests import DEPLOY, ROOT, alerts, check_expression

ROW = re.compile(
    r"^\| `([a-z-]+)` \| .*? \| `(sbon_query_reasons.*?|sbon_sinks.*?|sbon_queries.*?)` \| `(Sbon\w+)` \|$", re.MULTILINE
)
OF_RECORDS = {"failed", "unreachable", "lost"}
"""Reasons that are in a query's record, or say that this cannot be read."""


def rows() -> dict[str, tuple[str, str]]:
    """Return metric and alert by reason, as the document has them."""
    found = ROW.findall((ROOT / "docs" / "operations.md").read_text())
    return {reason: (metric, alert) for reason, metric, alert in found}


def test_every_reason_has_a_metric_and_an_alert() -> None:
    table = rows()
    assert set(table) == {*KINDS, *OF_RECORDS}
    for metric, alert in table.values():
        assert alert in alerts()
        if not metric.endswith("_total"):
            check_expression(metric)
    kinds = {reason: metric for reason, (metric, _) in table.items() if metric.startswith("sbon_query_reasons")}
    assert kinds == {reason: f'sbon_query_reasons{{kind="{reason}"}}' for reason in kinds}


def test_prometheus_alerts_of_every_reason(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool")
    tests = [rule_test(metric, alert) for metric, alert in rows().values()]
    tests.append(rule_test('sbon_query_behind_seconds{query="q"}', "SbonQueryBehind", value="301"))
    tests.append(rule_test('sbon_reason{code="parts-failed", weight="impaired"}', "SbonImpaired"))
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(DEPLOY / "prometheus" / "alerts.yml")], "tests": tests}))
    tested = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def rule_test(metric: str, alert: str, value: str = "2") -> dict[str, Any]:
    """Return a test of the alert: it fires for that series of the node ``a`` after a while, and not at once."""
    name, _, matched = metric.rstrip("}").partition("{")
    given = {"instance": "a", **dict(re.findall(r'(\w+)="([^"]*)"', matched))}
    rule = alerts()[alert]
    grouped = re.search(r"by \(([\w, ]+)\)", rule["expr"])
    assert grouped is not None, rule["expr"]
    kept = {label: given[label] for label in grouped[1].split(", ")}
    texts = {key: shown(text, kept, value) for key, text in rule["annotations"].items()}
    labels = ", ".join(f'{label}="{word}"' for label, word in given.items())
    steps = f"0+{value}x60" if name.endswith("_total") else f"{value}x60"
    fires = {"exp_labels": {**rule["labels"], **kept}, "exp_annotations": texts}
    return {
        "interval": "1m",
        "input_series": [{"series": f"{name}{{{labels}}}", "values": steps}],
        "alert_rule_test": [
            {"eval_time": "0m", "alertname": alert, "exp_alerts": []},
            {"eval_time": "40m", "alertname": alert, "exp_alerts": [fires]},
        ],
    }


def shown(text: str, labels: dict[str, str], value: str) -> str:
    for label, word in labels.items():
        text = text.replace(f"{{{{ $labels.{label} }}}}", word)
    return text.replace("{{ $value }}", value)
