"""The picture of a run: its queries as bars over time, and the faults as marks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sbon_lab.chaos.faults import ACTIONS
from sbon_lab.experiments.harness.pictures import save
from sbon_node.base.extras import matplotlib_figure
from sbon_protocol.api.states.query_states import FINISHED

INCHES_A_LINE = 0.22
LOCAL, REPLICATED, WRONG, FAULT = "tab:blue", "tab:green", "tab:red", "black"


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """Write the picture in all formats, and the result as JSON; return the files."""
    faults = [entry for entry in result["timeline"] if entry["subject"] == "fault" and entry["struck"]]
    queries = result["queries"]
    actions = [action for action in ACTIONS if any(entry["name"] == action for entry in faults)]
    figure = matplotlib_figure()()
    figure.set_size_inches(12, 2 + INCHES_A_LINE * (len(actions) + len(queries)))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(max(1, len(actions)), max(1, len(queries))))
    for entry in faults:
        _bar(above, actions.index(entry["name"]), entry["at_s"], entry["until_s"], FAULT)
    above.set_yticks(range(len(actions)), actions, fontsize=7)
    above.set(title=f"chaos, seed {result['rows'][0]['seed']}: faults, and queries (green: replicated, red: not right)")
    for line, query in enumerate(queries):
        _bar(below, line, query["began_s"], query["ended_s"], _colour(query))
        for entry in faults:
            below.axvline(entry["at_s"], color=FAULT, linewidth=0.2)
    below.set_yticks(range(len(queries)), [query["query"] for query in queries], fontsize=7)
    below.invert_yaxis()
    below.set(xlabel="seconds")
    return save(result, {"chaos": figure}, folder)


def _bar(axes: Any, line: int, at_s: float, until_s: float | None, colour: str) -> None:
    axes.barh(line, max(1.0, (until_s or at_s) - at_s), left=at_s, height=0.7, color=colour)


def _colour(query: Mapping[str, Any]) -> str:
    if query["end"] != FINISHED or query["wrong"] or query["lost"] or query["doubled"]:
        return WRONG
    return REPLICATED if query["durability"] == "replicated" else LOCAL
