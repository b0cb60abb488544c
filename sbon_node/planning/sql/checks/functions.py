"""Spark functions that a query may call: deterministic, bounded, and limited to the row.

All other functions are refused. ``functions.toml`` lists them, with reasons for people; only the list of the allowed decides.
"""

import difflib
import tomllib
from pathlib import Path

from sbon_node.planning.sql.syntax.lexical import words

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

ALLOWED = words(" ".join(_TABLES["allowed"].values()))

MIN_ARGUMENTS = {"unix_timestamp": 1, "to_unix_timestamp": 1}
"""Fewest arguments; with fewer, these functions read the clock."""

LITERAL_BOUNDS = {"repeat": (1, 100), "space": (0, 1000), "lpad": (1, 1000), "rpad": (1, 1000), "format_number": (1, 30)}
"""Maps functions to an argument's position and greatest value. The argument must be a literal, so that a row stays small."""

LITERAL_TEXTS = {"replace": (2, 100), "regexp_replace": (2, 100), "overlay": (1, 100), "translate": (2, 1000)}
"""Like :data:`LITERAL_BOUNDS`, for strings and their lengths."""

GROWING = words("repeat replace regexp_replace hex bin base64 url_encode lpad rpad concat concat_ws")
"""Functions whose result may exceed their input; at most :data:`MAX_GROWTH` of them may be nested."""

MAX_GROWTH = 6

UNIT_FIRST = frozenset({"timestampadd", "timestampdiff", "dateadd", "date_add", "datediff", "date_diff"})
"""Functions whose first of three arguments is a unit, a bare word."""

UNITS = words("year quarter month week day dayofyear hour minute second millisecond microsecond")

ALLOWED_AGGREGATES = {name: (int(count),) * 2 for count, names in _TABLES["aggregates"].items() for name in names.split()}
"""Maps aggregates to their fewest and most arguments.

Listed aggregates have small state and do not depend on the order of the rows.
"""

SKETCH_AGGREGATES = {"hll_sketch_agg": (1, 1), "hll_union_agg": (1, 1)}
"""Parts of ``approx_count_distinct``. Users may not call them, since a sketch's bytes depend on the order of the rows."""

WINDOW_COLUMNS = ("window", "session_window")
"""Functions that split event time into windows."""

REFUSED = {group: words(refusal.get("functions", "")) for group, refusal in _TABLES["refused"].items()} | {
    "allowed_aggregates": frozenset(ALLOWED_AGGREGATES),
    "window_columns": frozenset(WINDOW_COLUMNS),
}
"""Functions by the reason for which they are refused; the first group with a name counts."""

AGGREGATES = REFUSED["aggregates"]


def refusal_of(name: str) -> tuple[str, str, str]:
    """Return code, message and hint for a function that is not allowed."""
    for group, names in REFUSED.items():
        if name in names:
            refusal = _TABLES["refused"][group]
            return refusal["code"], refusal["message"].format(name), refusal["hint"].format(name)
    for other in _TABLES["elsewhere"]:
        if name in other["functions"].split():
            return "unsupported-window", f"Spark has no {name}", other["hint"]
    near = difflib.get_close_matches(name, sorted(ALLOWED), n=3, cutoff=0.7)
    hint = f"did you mean {' or '.join(near)}?" if near else "there are Spark's functions of numbers, strings, dates and arrays"
    return "unknown-function", f"{name} is not among the allowed functions", hint


# -- Regular expressions of a query: literals that RE2 accepts ---------------------------------------------------------

PATTERNS = {
    **dict.fromkeys(("rlike", "regexp", "regexp_like", "regexp_count", "regexp_extract", "regexp_extract_all"), 1),
    **dict.fromkeys(("regexp_instr", "regexp_replace", "regexp_substr", "split"), 1),
    **dict.fromkeys(("parse_url", "try_parse_url"), 2),
}
"""Maps functions to the position of the argument that is a regular expression, or that Spark writes into one.

Java looks for a match by trying, and remembers what it has tried only where no group is referred to or looked around: with a back
reference each further character may double the time. RE2 knows no construct that needs that.
"""

BAD_PATTERN = "unsupported-pattern"
NO_LITERAL = "a regular expression is a literal"
PATTERN_HINT = "write one that RE2 accepts: without back references, looking around and possessive repetitions"


def fault_of(pattern: str) -> str:
    """Return the refusal of a regular expression that RE2 does not accept; empty if it does."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.scalar(""), pattern)
    except (pa.ArrowInvalid, UnicodeError) as error:
        return f"a regular expression that RE2 does not accept: {str(error).removeprefix('Invalid regular expression: ')}"
    return ""
