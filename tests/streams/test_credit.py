"""Credit counts what a subscriber still holds, whatever order its reports come in."""

from __future__ import annotations

from sbon_node.streams.links.credit import Credit


def test_an_older_report_takes_no_credit_back() -> None:
    credit = Credit(100)
    credit.spend(80)
    credit.returned(60)
    credit.returned(20)
    assert credit.outstanding == 20
    assert credit.allows(80)
    assert not credit.allows(81)
