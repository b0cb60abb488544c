"""Requests and answers of a node's API, with the names and fields of ``GET /v1/openapi.json`` (docs/api.md).

Unknown fields of a newer node are ignored. Names of times end in their unit; None means "not known".
"""

from __future__ import annotations

from sbon_protocol.api.adaptation import MoveDecision, PastMove
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration, ViewDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.api.delivery import FOLLOW, Finished, Reader, Rows, Sample, SinkDelay, SinkReport
from sbon_protocol.api.durability import BackupInfo, Loss, Survival
from sbon_protocol.api.explanations import (
    Alternative,
    BoundCheck,
    ExplainedComponent,
    ExplainedLink,
    Explanation,
    Flow,
    KnownNode,
    PlacementExplanation,
    TurningPoint,
    WeighedLink,
    WeighedNode,
    WeighedOperator,
)
from sbon_protocol.api.measures import InputMeasures, OperatorMeasures
from sbon_protocol.api.moves import DrainStep, MoveCancelled, Moved, MoveProgress, Moving, NodeDrained
from sbon_protocol.api.nodes import (
    HeldCapacity,
    Joined,
    MemberInfo,
    NodeCapacity,
    NodeStatus,
    PairInfo,
    Readiness,
    Reason,
    RttRequest,
)
from sbon_protocol.api.operators import Needs, OperatorStats, PlannedInput
from sbon_protocol.api.placement import Assignment, Candidate, Placement
from sbon_protocol.api.plan import Plan, PlannedOperator, PlannedSource, Rate, SharedOperator
from sbon_protocol.api.queries import (
    Accepted,
    LinkInfo,
    MoveInfo,
    OperatorInfo,
    Progress,
    QueryInfo,
    QueryList,
    QueryProgress,
    QuerySpec,
    SinkInfo,
    SinkRequest,
    SinkSpec,
    Submission,
    Unanswered,
)
from sbon_protocol.api.shown import Listing
from sbon_protocol.api.streams import Pushed, RefusedRow, SourceInfo, StreamInfo
from sbon_protocol.api.usage import LinkUsage, QueryUsage, QueryUsagePoint, SpillCount

__all__ = ["FOLLOW", "Accepted", "Alternative", "Assignment", "BackupInfo", "BoundCheck", "Candidate", "CatalogEntry"]
__all__ += ["Column", "DrainStep", "ExplainedComponent", "ExplainedLink", "Explanation", "Finished", "Flow", "HeldCapacity"]
__all__ += ["InputMeasures", "Joined", "KnownNode", "LinkInfo", "LinkUsage", "Listing", "Loss", "MemberInfo", "MoveCancelled"]
__all__ += ["MoveDecision", "MoveInfo", "MoveProgress", "Moved", "Moving", "Needs", "NodeCapacity", "NodeDrained", "NodeStatus"]
__all__ += ["OperatorInfo", "OperatorMeasures", "OperatorStats", "PairInfo", "PastMove", "Placement", "PlacementExplanation"]
__all__ += ["Plan", "PlannedInput", "PlannedOperator", "PlannedSource", "Progress", "Pushed", "QueryInfo", "QueryList"]
__all__ += ["QueryProgress", "QuerySpec", "QueryUsage", "QueryUsagePoint", "Rate", "Reader", "Readiness", "Reason"]
__all__ += ["RefusedRow", "Rows", "RttRequest", "Sample", "SharedOperator", "SinkDelay", "SinkInfo", "SinkReport"]
__all__ += ["SinkRequest", "SinkSpec", "SourceDeclaration", "SourceInfo", "SpillCount", "StreamDeclaration", "StreamInfo"]
__all__ += ["Submission", "Survival", "TurningPoint", "Unanswered", "ViewDeclaration", "WeighedLink", "WeighedNode"]
__all__ += ["WeighedOperator"]
