"""Endpoints never show secrets, and connect only to permitted hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon_node.base.redaction import shown
from sbon_node.connectors.access.endpoints import read_endpoint
from sbon_node.connectors.settings import ConnectorSettings
from sbon_protocol.errors import SbonError


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"url": "postgres://me:s3cret@h/db"}, {"url": "postgres://me:(hidden)@h/db"}),
        ({"url": "mqtt://me:a%40b:c@h:1"}, {"url": "mqtt://me:(hidden)@h:1"}),
        ({"url": "http://me:p@ss@h/x?y=1"}, {"url": "http://me:(hidden)@h/x?y=1"}),
        ({"url": "http://me@h/x"}, {"url": "http://me@h/x"}),
        (
            {"headers": {"X-Api": "v", "B": "w"}, "format": "csv"},
            {"headers": {"X-Api": "(hidden)", "B": "(hidden)"}, "format": "csv"},
        ),
        ({"db_password": "p", "n": 1, "path": "/a:b@c"}, {"db_password": "(hidden)", "n": 1, "path": "/a:b@c"}),
    ],
)
def test_options_are_shown_without_what_gives_access(options: dict[str, Any], expected: dict[str, Any]) -> None:
    assert shown(options) == expected


def test_passwords_are_given_to_their_host_and_user_alone(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("machine a login me password one\nmachine b login you password two\ndefault login any password three\n")
    settings = ConnectorSettings(passwords=str(words))

    def found(url: str) -> tuple[str, str]:
        endpoint = read_endpoint(url, {"mqtt": 1883}, settings)
        assert str(endpoint).endswith(":1883")
        return endpoint.user, endpoint.password

    assert found("mqtt://a") == found("mqtt://me@a") == ("me", "one")
    assert found("mqtt://you@a") == ("you", "")
    assert found("mqtt://me:own@a") == ("me", "own")
    assert found("mqtt://me%3A:o%40@a") == ("me:", "o@")
    assert found("mqtt://c") == ("", "")
    words.write_text("machine a nonsense\n")
    for unusable in (settings, ConnectorSettings(passwords="/nowhere")):
        with pytest.raises(SbonError) as caught:
            read_endpoint("mqtt://a", {"mqtt": 1883}, unusable)
        assert (caught.value.code, caught.value.where) == ("bad-passwords", "connectors.passwords")
