"""Ordinary programs at a lender of the Pod Security level restricted: a database, a web server and a Job."""

from __future__ import annotations

from functools import partial
from typing import Any

from liqod.hosting.tenants.grants import ENFORCE
from tests.real.path import NAMESPACE, condition, eventually
from tests.real.programs import postgres
from tests.real.programs.base import LONG
from tests.real.programs.ledger import LedgerTests
from tests.real.programs.postgres import WRITER
from tests.real.programs.workloads import VIRTUAL, bare_pod, container, job, pod_spec, restricted, workload
from tests.real.steps import LOOP

WEB, JOB, ROOT = "web", "once", "as-root"
COUNT = 4
SERVE = "mkdir -p /tmp/www && echo hello > /tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www"


class RestrictedTests(LedgerTests):
    """Steps in the order of their numbers."""

    built = ()
    # It follows a section [hosting].
    configuration = f'\npod-security = "restricted"\n{LedgerTests.configuration}'

    def test_01_level(self) -> None:
        """Namespaces of tenants have the level; a pod that may become root is refused, and the pod at home says why."""
        self.begin()
        self.home.apply(bare_pod(ROOT, pod_spec(container("", command=LOOP), VIRTUAL)))

        def said() -> str:
            return "\n".join(str(one.get("message")) for one in [*self.events(ROOT), self.here("pod", ROOT)["status"]])

        eventually("it is refused", lambda: "restricted" in said() and "allowPrivilegeEscalation" in said(), LONG)
        labels = self.lender.get("namespace", self.remote())["metadata"]["labels"]
        self.assertEqual(labels[ENFORCE], "restricted")
        self.drop(f"pod/{ROOT}")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the events about a pod at home."""
        selector = f"involvedObject.name={name}"
        return list(self.home.get("events", "-n", NAMESPACE, "--field-selector", selector)["items"])

    def test_02_database(self) -> None:
        """PostgreSQL runs with its volume there, a client at home writes, and a new pod of it has what was written."""
        self.home.apply(postgres.service(), restricted(postgres.primary()))
        self.at_milan(postgres.PRIMARY)
        eventually("the database answers", lambda: self.ask("select 1") == "1", LONG)
        self.ask("create table ledger (n bigint primary key)")
        address = str(self.here("service", postgres.PRIMARY)["spec"]["clusterIP"])
        self.home.apply(restricted(postgres.writer(address, self.at_home)))
        self.at_rome(WRITER)
        self.writes_on()
        self.check_new_pod()

    def test_03_web_server(self) -> None:
        """A Deployment of web servers answers by its service, from home and from beside it."""
        self.home.apply(
            restricted(workload("Deployment", WEB, pod_spec(container(SERVE, port=8080), VIRTUAL), replicas=2))
        )
        address = self.serve(WEB, 8080)
        beside = next(iter(self.at_milan(WEB, 2)))
        for pod in (WRITER, beside):
            asked = partial(self.run_in, pod, "wget", "-q", "-O", "-", f"http://{address}:8080/")
            self.assertIn("hello", eventually(f"{pod} is answered", asked, LONG))

    def test_04_job(self) -> None:
        """An Indexed Job is done, each number once."""
        body = job(JOB, "echo number $JOB_COMPLETION_INDEX", completionMode="Indexed", completions=COUNT, parallelism=2)
        self.home.apply(restricted(body))
        eventually("it is done", lambda: condition(self.here("job", JOB), "Complete") == "True", LONG)
        said = self.home.kubectl("logs", "-n", NAMESPACE, "-l", f"app={JOB}", "--tail=-1", "--max-log-requests=9")
        self.assertEqual(sorted(said.splitlines()), [f"number {number}" for number in range(COUNT)])

    def test_05_level_of_all(self) -> None:
        """All pods of the tenant run as somebody else than root, without a capability."""
        pods = self.lender.get("pods", "-n", self.remote())["items"]
        self.assertGreaterEqual(len(pods), 3 + COUNT)
        for one in pods:
            self.assertTrue(one["spec"]["securityContext"]["runAsNonRoot"], one["metadata"]["name"])
        (status,) = (
            line for line in self.run_in(self.primary, "cat", "/proc/1/status").splitlines() if "CapBnd" in line
        )
        self.assertEqual(int(status.split()[1], 16), 0)
