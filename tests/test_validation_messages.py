"""Refusals of values in the words of their author."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from sbon_node.base.validation_messages import in_plain_words


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    format: Annotated[Literal["", "csv", "ndjson"], Meta(description="of the file")] = ""
    rate: Annotated[float, Meta(gt=0)] = 1.0


class One(msgspec.Struct, tag="one"):
    word: Literal["so", "thus"] = "so"


class Two(msgspec.Struct, tag="two"):
    pass


class Outer(msgspec.Struct):
    name: Annotated[str, Meta(min_length=1, max_length=5, pattern="^[a-z]*$", description="lower case letters are allowed")]
    inner: Inner | None = None
    many: list[int] = []
    either: tuple[One | Two, ...] = ()
    few: Annotated[list[int], Meta(max_length=1)] = []
    named: dict[str, Inner] = {}
    words: dict[str, Literal["so", "thus"]] = {}
    short: dict[Annotated[str, Meta(max_length=3, pattern="^[a-z]*$")], int] = {}
    letter: Annotated[str, Meta(max_length=1)] = ""
    within_ms: int = 0


@pytest.mark.parametrize(
    "value, field, message",
    [
        ({}, "", "name is missing"),
        ({"name": ""}, "name", "must not be empty"),
        ({"name": "abcdef"}, "name", "must have at most 5 characters"),
        ({"name": "A"}, "name", "has a character that is not allowed, or is too long: lower case letters are allowed"),
        ({"name": 5}, "name", "must be text, and is a whole number"),
        ({"name": "a", "inner": {"format": "xml"}}, "inner.format", "'xml' is not known: it is one of csv, ndjson"),
        ({"name": "a", "inner": {"rate": 0}}, "inner.rate", "must be more than 0"),
        ({"name": "a", "inner": {"rat": 0}}, "inner", "there is no field rat: did you mean rate or format?"),
        ({"name": "a", "inner": 7}, "inner", "must be a map or nothing, and is a whole number"),
        ({"name": "a", "many": ["x"]}, "many[0]", "must be a whole number, and is text"),
        ({"name": "a", "either": [{"type": "tow"}]}, "either[0].type", "'tow' is not known: it is one of one, two"),
        (
            {"name": "a", "either": [{"type": "one", "word": "no"}]},
            "either[0].word",
            "'no' is not known: it is one of so, thus",
        ),
        ({"name": "a", "few": [1, 2]}, "few", "must have at most 1 entry"),
        ({"name": "a", "letter": "ab"}, "letter", "must have at most 1 character"),
        (
            {"name": "a", "named": {"x.y": {"format": "xml"}}},
            "named[...].format",
            "'xml' is not known: it is one of csv, ndjson",
        ),
        ({"name": "a", "words": {"x": "no"}}, "words[...]", "'no' is not known: it is one of so, thus"),
        ({"name": "a", "short": {"abcd": 1}}, "short", "a key must have at most 3 characters"),
        ({"name": "a", "short": {"A": 1}}, "short", "a key has a character that is not allowed, or is too long"),
        ({"name": "a", "short": {5: 1}}, "short", "a key must be text, and is a whole number"),
        ({"name": "a", "inner": {"xyz": 0}}, "inner", "there is no field xyz"),
        ({"name": "a", "within_ms": "5s"}, "within_ms", "must be a whole number, and is text: milliseconds, 5000 for 5 s"),
        (7, "", "must be a map, and is a whole number"),
    ],
)
def test_messages_name_the_field(value: object, field: str, message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(value, Outer)
    assert in_plain_words(refused.value, Outer) == (field, message)
