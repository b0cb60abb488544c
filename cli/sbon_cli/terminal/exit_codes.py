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
  2    wrong usage or bad configuration
  3    the node cannot be reached
  130  interrupted"""

_CONFIGURATION_CODES = frozenset(
    {"bad-address", "bad-config", "bad-delays", "bad-latency", "bad-log-file", "bad-matrix", "bad-scenario", "bad-schema"}
    | {"bad-type", "data-dir", "data-dir-in-use", "not-my-data", "port-in-use", "too-few-nodes", "unknown-algorithm"}
    | {"unknown-suite-query", "unknown-topology"}
)


def exit_code_of(error: SbonError) -> int:
    if error.code in ("node-unreachable", "nodes-unreachable", "consumer-unreachable"):
        return EXIT_UNREACHABLE
    return EXIT_USAGE if error.code in _CONFIGURATION_CODES else EXIT_REFUSED
