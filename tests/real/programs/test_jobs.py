"""CronJobs, and Jobs whose pods have numbers, at the lender."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.real.path import NAMESPACE, condition, eventually
from tests.real.programs.base import LONG, ProgramTests
from tests.real.programs.workloads import every_minute, job

INDEXED, CRON, FAILING = "numbers", "every-minute", "failing"
COUNT = 12


class JobTests(ProgramTests):
    """Steps in the order of their numbers."""

    built = ()
    packages = ("bash", "coreutils")

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Return all pods of a job at home."""
        return list(self.home.get("pods", "-n", NAMESPACE, "-l", f"app={name}")["items"])

    def said(self, name: str) -> str:
        """Return what the pods of a job have printed."""
        words = ("logs", "-n", NAMESPACE, "-l", f"app={name}", "--tail=-1", "--max-log-requests=20")
        return self.home.kubectl(*words)

    def done(self, name: str, kind: str = "Complete") -> bool:
        """Tell whether a job has ended so."""
        return condition(self.here("job", name), kind) == "True"

    def test_01_indexed(self) -> None:
        """Each number of an Indexed Job runs once and knows its number; three at a time and no more."""
        self.begin()
        script = "echo number $JOB_COMPLETION_INDEX on $(hostname); sleep 2"
        body = job(INDEXED, script, completionMode="Indexed", completions=COUNT, parallelism=3)
        self.home.apply(body)
        most = 0

        def ended() -> bool:
            nonlocal most
            running = [one for one in self.pods(INDEXED) if one["status"].get("phase") in ("Pending", "Running")]
            most = max(most, len(running))
            return self.done(INDEXED)

        eventually("all numbers are done", ended, LONG)
        self.assertLessEqual(most, 3)
        status = self.here("job", INDEXED)["status"]
        self.assertEqual((status["succeeded"], status["completedIndexes"]), (COUNT, f"0-{COUNT - 1}"))
        self.assertEqual(status.get("failed", 0), 0)
        lines = [line.split() for line in self.said(INDEXED).splitlines()]
        self.assertEqual(sorted(int(line[1]) for line in lines), list(range(COUNT)))
        self.assertTrue(all(line[3].startswith(f"{INDEXED}-{line[1]}") for line in lines), lines)
        self.assertEqual({pod["spec"]["nodeName"] for pod in self.pods(INDEXED)}, {"liqo-milan"})

    def test_02_failing(self) -> None:
        """Pods that fail are tried as often as the Job says; a policy that names the exit code ends it at once."""
        rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
        self.home.apply(
            job(FAILING, "exit 1", backoffLimit=1),
            job("fatal", "exit 42", backoffLimit=6, podFailurePolicy={"rules": [rule]}),
        )
        for name, reason, count in ((FAILING, "BackoffLimitExceeded", 2), ("fatal", "PodFailurePolicy", 1)):
            eventually(f"{name} has failed", partial(self.done, name, "Failed"), LONG)
            conditions = self.here("job", name)["status"]["conditions"]
            self.assertIn(reason, {one.get("reason") for one in conditions})
            self.assertEqual(self.here("job", name)["status"]["failed"], count)

    def test_03_cron(self) -> None:
        """A CronJob makes a job at milan each minute, one after the other, and keeps as many as it is to keep."""
        self.home.apply(every_minute(CRON, "date; echo of the minute", successfulJobsHistoryLimit=1))
        names: set[str] = set()

        def thrice() -> bool:
            jobs = self.home.get("jobs", "-n", NAMESPACE)["items"]
            names.update(one["metadata"]["name"] for one in jobs if one["metadata"]["name"].startswith(CRON))
            return len(names) >= 3

        eventually("three jobs", thrice, LONG)

        def one_is_kept() -> bool:
            jobs = self.home.get("jobs", "-n", NAMESPACE)["items"]
            ended = [
                one for one in jobs if one["metadata"]["name"].startswith(CRON) and condition(one, "Complete") == "True"
            ]
            return len(ended) == 1

        eventually("one that ended is kept", one_is_kept)
        self.assertIn("of the minute", self.said(CRON))

    def test_04_gone(self) -> None:
        """With the jobs their pods go, on both sides."""
        self.drop(f"cronjob/{CRON}")
        self.home.kubectl("delete", "jobs", "-n", NAMESPACE, "--all", "--timeout=120s", timeout=130)
        eventually("no pod is left", lambda: not self.lender.get("pods", "-n", self.remote())["items"], LONG)
