"""SPEC.md names the fields of the records that fields of type ``any`` hold."""

from __future__ import annotations

import re

import msgspec
import pytest

from sbon_node.hosting.components import SinkOrder
from sbon_node.model.servers import ServerReport
from sbon_protocol.api.adaptation import MoveDecision
from sbon_protocol.api.delivery import FurtherReport, SinkDelay, SinkReport
from sbon_protocol.api.measures import InputMeasures, MeasureSums, OperatorMeasures
from sbon_protocol.api.moves import MoveProgress
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from sbon_protocol.api.queries import ForeignComponent, LinkInfo, OperatorInfo, SinkInfo, SinkRequest
from sbon_protocol.api.streams import SourceInfo
from tests.protocol.test_spec import SPEC


def meaning(message: str, field: str) -> str:
    """The last cell of the field's row."""
    section = SPEC.read_text().partition(f"\n#### {message}\n")[2].partition("\n#")[0]
    row = re.search(rf"^\| \d+ \| {field} \|.*\| (.*) \|$", section, re.MULTILINE)
    assert row is not None
    return row[1]


@pytest.mark.parametrize(
    "message, field, record",
    [
        ("SourceStates", "sources", SourceInfo),
        ("InstantiateOperator", "spec", OperatorSpec),
        ("AddQuerySink", "request", SinkRequest),
        ("QuerySink", "sink", SinkInfo),
        ("ComponentStates", "further", FurtherReport),
        ("QueryRecords", "components", ForeignComponent),
        ("ComponentStates", "operators", OperatorInfo),
        ("ComponentStates", "links", LinkInfo),
        ("ComponentStates", "sink", SinkReport),
        ("ComponentStates", "delay", SinkDelay),
        ("NodeAnswer", "server", ServerReport),
        ("ActivateOperator", "measures", MeasureSums),
        ("OperatorFollowed", "progress", MoveProgress),
    ],
)
def test_spec_names_each_field_of_a_record(message: str, field: str, record: type[msgspec.Struct]) -> None:
    told = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", meaning(message, field)))
    assert told == list(record.__struct_fields__)


def test_spec_names_each_field_of_the_order_of_a_further_sink() -> None:
    told = [
        name
        for message in ("OpenSink", "AddSink")
        for name in re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", meaning(message, "sink")))
    ]
    assert told == list(SinkOrder.__struct_fields__)


def test_spec_names_each_field_of_an_operators_inputs() -> None:
    (told,) = re.findall(r"\{(.*?)\}", meaning("InstantiateOperator", "spec"))
    assert re.findall(r"`(\w+)`", told) == list(InputSpec.__struct_fields__)


def test_spec_names_each_field_of_a_decision() -> None:
    (described,) = re.findall(r"^A record of `decisions` has .*$", SPEC.read_text(), re.MULTILINE)
    assert re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", described))[1:] == list(MoveDecision.__struct_fields__)


def test_spec_names_each_field_of_an_operators_measures() -> None:
    (described,) = re.findall(r"^The record `measures` of .*$", SPEC.read_text(), re.MULTILINE)
    whole, of_inputs = re.sub(r"\(.*?\)", "", described).split("Each of `inputs` has")
    assert re.findall(r"`(\w+)`", whole)[1:] == list(OperatorMeasures.__struct_fields__)
    assert re.findall(r"`(\w+)`", of_inputs) == list(InputMeasures.__struct_fields__)
