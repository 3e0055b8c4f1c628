"""What the diagnosis says before pods are run. Pure."""

from __future__ import annotations

import attrs

from liqod.cli.status.cluster_records import advice_of
from liqod.model.diagnosis.cluster import ClusterRecords, problems_of


@attrs.frozen
class Objection:
    """Why no pods are run at a peer: the object, what is wrong, what to do."""

    subject: str
    cause: str
    advice: str


def objection(facts: ClusterRecords, peer: str, name: str) -> Objection | None:
    """Return why pods at a peer cannot be tested; None where nothing is known to be in the way.

    Without a tunnel another network may connect the pods.
    """
    wrong = next((one for one in problems_of(facts, peer) if one.severity == "error"), None)
    if wrong is not None:
        advice = advice_of(wrong) or f"`liqodctl explain peer {name}`"
        return Objection(f"{wrong.kind} {wrong.name}", wrong.text, advice)
    if not any(record.spec.cluster_id == peer for record in facts.virtual_nodes):
        cause = "there is no virtual node for the peer: nothing is borrowed from it"
        return Objection(f"VirtualNode of {name}", cause, f"`liqodctl explain peer {name}`")
    return None
