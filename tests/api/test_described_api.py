"""The API of a real node, asked what its description allows and what it forbids: no answer is one that is not described
(schemathesis)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case
from schemathesis.checks import positive_data_acceptance
from schemathesis.schemas import BaseSchema

from sbon.local.cluster import LocalCluster
from sbon_node.api.routes.table import ROUTES, description_of

pytestmark = pytest.mark.live

EXAMPLES = 12
UNASKED = ("leave", "drain", "events")
"""The first two would end the node, or its use, for good; the third has no end: all have tests of their own."""
ASKED = [route for route in ROUTES if route.name not in UNASKED]
HURRY = {"api.requests_per_s": 1e6, "api.request_burst": 1_000_000}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with LocalCluster(1, folder=tmp_path_factory.mktemp("described"), overrides=HURRY) as local:
        yield local.nodes[0].client.api


@pytest.fixture(params=sorted({route.path for route in ASKED}))
def described(request: pytest.FixtureRequest) -> BaseSchema:
    """The description of one path. Its cases are generated when its test runs: those of all take ten seconds."""
    request.node._nodeid = request.node.nodeid  # Schemathesis 4.32 changes it for its reports, and pytest 9.2 has none.
    return schemathesis.openapi.from_dict(description_of([route for route in ASKED if route.path == request.param]))


@pytest.mark.one_part_per_commit("paths of the API", parts=12)
@schemathesis.pytest.from_fixture("described").parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_one_that_is_described(case: Case, api: str) -> None:
    """That a text is SQL, or names a node there is, no schema can say: what is of the right form may still be refused."""
    case.call_and_validate(base_url=api, excluded_checks=[positive_data_acceptance], timeout=60)
