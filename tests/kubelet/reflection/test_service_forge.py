"""What of a Service goes to the lender, and what of the lender's is looked at again."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.common.context import Context
from liqod.kubelet.reflection.forge import service
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs
from liqod.kubelet.reflection.views import WithSpec
from liqod.model.ids import ClusterID
from liqod.model.names import FORCE_NODE_PORT

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
PLACE = Context(home=ClusterID("home"), lender=ClusterID("rome"), node_name="liqo-rome")
CONTEXT = ForgeInputs(PLACE)
ports = st.lists(
    st.fixed_dictionaries(
        {"port": st.integers(1, 9)},
        optional={"nodePort": st.integers(0, 32767), "name": st.sampled_from(["", "a"]), "protocol": st.just("UDP")},
    ),
    max_size=3,
)


def thing(spec: dict[str, Any], forced: str | None = None) -> WithSpec:
    annotations = {} if forced is None else {FORCE_NODE_PORT: forced}
    metadata = {"name": "db", "namespace": "shop", "annotations": annotations}
    return msgspec.json.decode(msgspec.json.encode({"metadata": metadata, "spec": spec}), type=WithSpec)


class NodePortTests(SynchronousTestCase):
    """Ports of this cluster's nodes are this cluster's."""

    @given(ports, st.sampled_from(["NodePort", "LoadBalancer", "ClusterIP"]), st.sampled_from([None, "false", "true"]))
    @STEADILY
    def test_they_go_only_where_they_are_forced(self, given_ports: list[Any], kind: str, forced: str | None) -> None:
        """By the annotation; all else of a port goes anyhow, and what the lender chose itself is no difference."""
        home = thing({"type": kind, "ports": given_ports}, forced)
        desired = service.forge(home, CONTEXT)
        assert isinstance(desired, DesiredObject)
        sent = desired.content["spec"].get("ports", [])
        wanted = [each.get("nodePort") or None if forced == "true" else None for each in given_ports]
        self.assertEqual([each.get("nodePort") for each in sent], wanted)
        self.assertEqual([each["port"] for each in sent], [each["port"] for each in given_ports])
        theirs = [{**each, "nodePort": each.get("nodePort", 30000 + number)} for number, each in enumerate(sent)]
        if not any(wanted):
            self.assertEqual(service.observe(thing({"type": kind, "ports": theirs}), desired), desired.content)
