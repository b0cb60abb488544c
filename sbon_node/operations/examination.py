"""Results of an examination: a line for each check, with a remedy for problems."""

from typing import Literal

import msgspec

Verdict = Literal["ok", "warning", "failed"]


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result of ``check`` at ``node``, the node asked if that is empty; ``remedy`` is empty if all is well."""

    check: str
    verdict: Verdict
    message: str
    remedy: str = ""
    node: str = ""


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """Results of all checks; ``node`` is empty if no node runs and only the machine was examined."""

    node: str = ""
    findings: tuple[CheckResult, ...] = ()

    @property
    def failed(self) -> bool:
        return any(finding.verdict == "failed" for finding in self.findings)


def ok(check: str, message: str) -> CheckResult:
    return CheckResult(check=check, verdict="ok", message=message)


def warning(check: str, message: str, remedy: str) -> CheckResult:
    return CheckResult(check=check, verdict="warning", message=message, remedy=remedy)


def failed(check: str, message: str, remedy: str) -> CheckResult:
    return CheckResult(check=check, verdict="failed", message=message, remedy=remedy)
