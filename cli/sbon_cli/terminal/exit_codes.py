"""Exit codes of commands."""

from sbon import SbonError

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130

EXIT_CODES = """\b
Exit codes:
  0    done
  1    the node refused, or the work failed
  2    wrong usage, a wrong stream, source or sink, or bad configuration
  3    the node cannot be reached, or a node that it needs does not answer
  130  interrupted"""

_USAGE_CODES = frozenset(
    {"bad-address", "bad-config", "bad-delays", "bad-latency", "bad-log-file", "bad-matrix", "bad-scenario"}
    | {"bad-event-time", "bad-name", "bad-option", "bad-schema", "bad-source", "bad-type", "unknown-connector", "unknown-option"}
    | {"data-dir", "data-dir-in-use", "not-my-data", "port-in-use", "too-few-nodes", "unknown-algorithm"}
    | {"unknown-suite-query", "unknown-topology"}
)


def exit_code_of(error: SbonError) -> int:
    if error.code in ("node-unreachable", "nodes-unreachable", "consumer-unreachable", "holder-unreachable", "host-unreachable"):
        return EXIT_UNREACHABLE
    return EXIT_USAGE if error.code in _USAGE_CODES else EXIT_REFUSED
