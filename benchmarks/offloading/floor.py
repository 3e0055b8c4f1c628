"""The least that can run a pod of one cluster in another one, to see how much of the cost of offloading has to be.

A program without decisions, checks or retries (``tests/testbed/gomod/floor``) plays both daemons at once: a token bound
to the pod, a Secret and a ShadowPod, the pod at the lender, one status at home. No admission policy and no quota counts
in its namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import Final, TypeVar

from tests.real.path import eventually
from tests.testbed import build, versions
from tests.testbed.process import Process
from tests.testbed.testbed import Testbed

NAMESPACE: Final = "floor"
SELECTOR: Final = {"type": "floor"}
"""The label of the program's node at home."""
LOOK: Final = 0.5
"""Seconds between two looks at whether the program still runs."""
T = TypeVar("T")


@contextmanager
def running(testbed: Testbed) -> Iterator[Process]:
    """Have the program run the pods of its node in the second cluster; both have ShadowPods, and no daemon runs."""
    build.ensure(("floor",))
    home, lender = testbed[1], testbed[2]
    for cluster in (home, lender):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        account = ("get", "serviceaccount", "default", "-n", NAMESPACE, "--ignore-not-found", "-o=name")
        eventually("the service account", partial(cluster.kubectl, *account))
    files = (f"-home={home.kubeconfig}", f"-lender={lender.kubeconfig}", f"-namespace={NAMESPACE}")
    program = home.spawn("floor", [str(versions.program("floor")), *files])

    def stand() -> None:
        home.kubectl("wait", "node/floor", "--for=create", "--timeout=60s")
        home.kubectl("wait", "node/floor", "--for=condition=Ready", "--timeout=60s")

    try:
        during(program, stand)
        yield program
    finally:
        program.stop()
        home.kubectl("delete", "node", "floor", "--ignore-not-found")


def during(program: Process, work: Callable[[], T]) -> T:
    """Do what a program is needed for; SystemExit with its last words where it ends before that is done.

    The work is left alone then, in a thread that ends with this process: it waits for what will not come.
    """
    done: Future[T] = Future()

    def do() -> None:
        try:
            found = work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(found)

    Thread(target=do, name=f"beside {program.name}", daemon=True).start()
    while not wait([done], LOOK).done:
        if not program.running:
            raise SystemExit(f"{program.name} ended, and the run with it:\n{program.tail()}")
    return done.result()
