"""The parts of peering, for those that tell them of each other."""

from __future__ import annotations

import attrs

from liqod.flow.tasks import Tasks
from liqod.peering.broadcaster import Broadcaster
from liqod.peering.credentials import Grants, Keeper
from liqod.peering.ending import Endings
from liqod.peering.intake import Intake
from liqod.peering.namespaces import Answers, Questions
from liqod.peering.network import Networks
from liqod.peering.newkeys import NewKeys
from liqod.peering.pipeline import AcceptPipeline
from liqod.peering.records import Records
from liqod.peering.rotation import Rotation
from liqod.peering.tombstones import Tombstones
from liqod.peering.traces import Traces


@attrs.frozen
class Parts:
    """All of them; ``networks`` is None where there is no network between clusters."""

    records: Records
    traces: Traces
    tombstones: Tombstones
    broadcaster: Broadcaster
    grants: Grants
    keeper: Keeper
    accept: AcceptPipeline
    endings: Endings
    intake: Intake
    networks: Networks | None
    questions: Questions
    answers: Answers
    rotation: Rotation
    new_keys: NewKeys
    tasks: Tasks
