"""Remembered analyses of fragments."""

from __future__ import annotations

import pytest

from sbon_node.engine.spark.adapter import Analyses
from sbon_node.engine.spark.messages import Analyse
from sbon_protocol.api.columns import Column, Schema
from sbon_protocol.api.operators import OnError
from sbon_protocol.errors import SbonError

NUMBERS, TEXTS = (Column("a", "bigint"),), (Column("a", "string"),)


class CountedAnalysis:
    """Answers with the schema of the first input, and refuses ``bad`` fragments."""

    def __init__(self) -> None:
        self.made: list[str] = []

    async def __call__(self, command: Analyse) -> Schema:
        self.made.append(command.fragment)
        if command.fragment == "bad":
            raise SbonError("bad-sql", "no such column", where="fragment")
        return command.inputs[0]


def command(fragment: str, schema: Schema = NUMBERS, on_error: OnError = "fail") -> Analyse:
    return Analyse(fragment=fragment, inputs=(schema,), on_error=on_error)


async def test_the_same_fragment_over_the_same_columns_is_analysed_once() -> None:
    made = CountedAnalysis()
    analyses = Analyses(10, made)
    for _ in range(2):
        assert await analyses.schema(command("x")) == NUMBERS
        assert await analyses.schema(command("x", TEXTS)) == TEXTS
        assert await analyses.schema(command("x", on_error="null")) == NUMBERS
    assert made.made == ["x"] * 3


async def test_a_refusal_is_made_anew() -> None:
    made = CountedAnalysis()
    analyses = Analyses(10, made)
    for _ in range(2):
        with pytest.raises(SbonError, match="no such column"):
            await analyses.schema(command("bad"))
    assert made.made == ["bad", "bad"]


@pytest.mark.parametrize("most, again", [(2, ["b"]), (3, []), (0, ["a", "b", "c"])])
async def test_the_analyses_asked_for_least_recently_are_forgotten(most: int, again: list[str]) -> None:
    made = CountedAnalysis()
    analyses = Analyses(most, made)
    for fragment in ("a", "b", "a", "c"):
        await analyses.schema(command(fragment))
    made.made.clear()
    for fragment in ("a", "c", "b") if most else ("a", "b", "c"):
        await analyses.schema(command(fragment))
    assert made.made == again
