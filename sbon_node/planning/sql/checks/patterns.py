"""Regular expressions of a query: literals that RE2 accepts.

Java looks for a match by trying, and remembers what it has tried only where no group is referred to or looked around: with a back
reference each further character may double the time. RE2 knows no construct that needs that.
"""

from __future__ import annotations

PATTERNS = {
    **dict.fromkeys(("rlike", "regexp", "regexp_like", "regexp_count", "regexp_extract", "regexp_extract_all"), 1),
    **dict.fromkeys(("regexp_instr", "regexp_replace", "regexp_substr", "split"), 1),
    **dict.fromkeys(("parse_url", "try_parse_url"), 2),
}
"""Maps functions to the position of the argument that is a regular expression, or that Spark writes into one."""

CODE = "unsupported-pattern"
NO_LITERAL = "a regular expression is a literal"
HINT = "write one that RE2 accepts: without back references, looking around and possessive repetitions"


def fault_of(pattern: str) -> str:
    """Return why RE2 refuses a regular expression; empty if it accepts it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.scalar(""), pattern)
    except (pa.ArrowInvalid, UnicodeError) as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return ""
