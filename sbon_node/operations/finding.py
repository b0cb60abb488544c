"""What an examination finds: a line for each thing looked at, and what to do where it is not well."""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["ok", "warning", "failed"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """``check`` names what was looked at; ``remedy`` is empty where all is well."""

    check: str
    verdict: Verdict
    message: str
    remedy: str = ""


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """``node`` is empty where none runs, and only its machine was looked at."""

    node: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def failed(self) -> bool:
        return any(finding.verdict == "failed" for finding in self.findings)


def ok(check: str, message: str) -> Finding:
    return Finding(check=check, verdict="ok", message=message)


def warning(check: str, message: str, remedy: str) -> Finding:
    return Finding(check=check, verdict="warning", message=message, remedy=remedy)


def failed(check: str, message: str, remedy: str) -> Finding:
    return Finding(check=check, verdict="failed", message=message, remedy=remedy)
