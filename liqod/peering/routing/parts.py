"""The parts of peering, for those that tell them of each other."""

from __future__ import annotations

import attrs

from liqod.flow.tasks import Tasks
from liqod.peering.borrowing.accept_pipeline import AcceptPipeline
from liqod.peering.borrowing.advertisements import Intake
from liqod.peering.exchange.credentials import Grants, Keeper
from liqod.peering.exchange.namespaces import Answers, Questions
from liqod.peering.exchange.network import Networks
from liqod.peering.lending.advertiser import Broadcaster
from liqod.peering.records.foreignclusters import Records
from liqod.peering.records.leftovers import Traces
from liqod.peering.records.tombstones import Tombstones
from liqod.peering.trust.new_keys import NewKeys
from liqod.peering.trust.rotation import Rotation
from liqod.peering.trust.withdrawals import Withdrawals
from liqod.peering.unpeering import Endings


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
    withdrawals: Withdrawals
