"""The least that can run a pod of one cluster in another one, to see how much of the cost of offloading has to be.

A program without decisions, checks or retries (``tests/testbed/gomod/floor``) plays both daemons at once: a token bound
to the pod, a Secret and a ShadowPod, the pod at the lender, one status at home. No admission policy and no quota counts
in its namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from tests.real.path import eventually
from tests.testbed import build, versions
from tests.testbed.testbed import Testbed

NAMESPACE: Final = "floor"
SELECTOR: Final = {"type": "floor"}
"""The label of the program's node at home."""


@contextmanager
def running(testbed: Testbed) -> Iterator[None]:
    """Have the program run the pods of its node in the second cluster; both have ShadowPods, and no daemon runs."""
    build.ensure(("floor",))
    home, lender = testbed[1], testbed[2]
    for cluster in (home, lender):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        account = ("get", "serviceaccount", "default", "-n", NAMESPACE, "--ignore-not-found", "-o=name")
        eventually("the service account", partial(cluster.kubectl, *account))
    files = (f"-home={home.kubeconfig}", f"-lender={lender.kubeconfig}", f"-namespace={NAMESPACE}")
    program = home.spawn("floor", [str(versions.program("floor")), *files])
    try:
        home.kubectl("wait", "node/floor", "--for=create", "--timeout=60s")
        home.kubectl("wait", "node/floor", "--for=condition=Ready", "--timeout=60s")
        yield
    finally:
        program.stop()
        home.kubectl("delete", "node", "floor", "--ignore-not-found")
