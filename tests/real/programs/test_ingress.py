"""An ingress controller at home that leads to offloaded pods."""

from __future__ import annotations

from tests.real.path import NAMESPACE, eventually, live_pods
from tests.real.programs import ingress, traffic
from tests.real.programs.base import ProgramTests
from tests.real.programs.traffic import SEEN, WEB

HOST = "shop.example.com"
VISITOR = "visitor"


class IngressTests(ProgramTests):
    """Steps in the order of their numbers."""

    built = ("home-client", "skipper")
    packages = ("curl", "bash", "coreutils")

    @property
    def front(self) -> str:
        """The address of the controller's pod."""
        (pod,) = live_pods(self.home, ingress.NAME).values()
        return f"{pod['status']['podIP']}:{ingress.PORT}"

    def answers(self) -> set[str]:
        """Return the hosts that have answered the visitor, by their names."""
        by = self.seen(VISITOR, SEEN)["by"]
        return {text.split()[-1] for text in by}

    def failed(self) -> int:
        """Return how many requests of the visitor have failed."""
        return int(self.seen(VISITOR, SEEN)["failed"])

    def asked_again(self) -> None:
        """Have the visitor begin with empty counts, and be answered."""
        self.home.kubectl("delete", "pod", "-n", NAMESPACE, VISITOR, "--ignore-not-found", "--timeout=60s", timeout=70)
        url = f"http://{self.front}/"
        self.home.apply(traffic.load(VISITOR, url, self.at_home, host=HOST))
        self.at_rome(VISITOR)
        eventually("it is answered", lambda: self.seen(VISITOR, SEEN)["answered"] > 20)

    def test_01_offloaded_pods_answer(self) -> None:
        """Requests to the controller at rome, by a name, are answered by all pods at milan."""
        self.begin()
        self.home.apply(*ingress.rights(), ingress.controller(self.at_home), traffic.web(3))
        self.serve(WEB, traffic.PORT)
        self.home.apply(ingress.ingress(WEB, HOST, WEB, traffic.PORT))
        pods = self.at_milan(WEB, 3)
        self.at_rome(ingress.NAME)

        def leads_there() -> bool:
            said = self.home.run(["curl", "-s", "-m", "10", "-H", f"Host: {HOST}", f"http://{self.front}/"])
            return "hello from" in said

        eventually("the controller leads there", leads_there)
        self.asked_again()
        eventually("all answer", lambda: self.answers() == set(pods))
        self.assertEqual(self.failed(), 0, self.seen(VISITOR, SEEN))

    def test_02_another_name(self) -> None:
        """A name that no Ingress has is answered by nobody."""
        ask = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: other.example.com"]
        self.assertEqual(self.home.run([*ask, f"http://{self.front}/"]), "404")

    def test_03_scaled(self) -> None:
        """Pods that come are asked as well; those that go are asked no more, and no request is lost."""
        self.asked_again()
        self.home.kubectl("scale", "-n", NAMESPACE, f"deployment/{WEB}", "--replicas=5")
        more = self.at_milan(WEB, 5)
        eventually("all five answer", lambda: self.answers() == set(more))
        self.home.kubectl("scale", "-n", NAMESPACE, f"deployment/{WEB}", "--replicas=2")
        fewer = self.at_milan(WEB, 2)
        self.assertEqual(self.failed(), 0, self.seen(VISITOR, SEEN))
        self.asked_again()
        eventually("the two answer", lambda: self.answers() == set(fewer))

    def test_04_the_daemons_are_away(self) -> None:
        """While neither cluster has a daemon the way through the controller stays open."""
        self.asked_again()
        for daemon in (self.rome, self.milan):
            daemon.kill()
        before = self.seen(VISITOR, SEEN)["answered"]
        self.stays("no request fails", lambda: self.failed() == 0, 15.0)
        self.assertGreater(self.seen(VISITOR, SEEN)["answered"], before)
        for daemon in (self.rome, self.milan):
            daemon.start()
        eventually("the tunnel", self.connected)
        self.assertEqual(self.failed(), 0, self.seen(VISITOR, SEEN))
