"""What counts as a URL in the settings, as a rule, and which settings of the metrics go together."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.config.checks import MAX_RULES, is_https
from liqod.config.load import SettingsError, parse
from liqod.kubelet.common.egress import egress_to


class URLTests(SynchronousTestCase):
    """``https://...``."""

    def test_urls(self) -> None:
        """An API server has https, a host, and no port or one from 1."""
        for text, expected in (
            ("https://10.0.0.1", True),
            ("https://10.0.0.1:1", True),
            ("https://[2001:db8::1]:6443/path", True),
            ("https://10.0.0.1:0", False),
            ("https://10.0.0.1:65536", False),
            ("https://", False),
            ("https://:6443", False),
            ("http://10.0.0.1", False),
            ("10.0.0.1:6443", False),
        ):
            self.assertEqual(is_https(text), expected, text)


class EgressTests(SynchronousTestCase):
    """Rules for what may leave this cluster."""

    def problems(self, text: str) -> list[str]:
        found: list[str] = self.assertRaises(SettingsError, parse, text, {}).problems
        return found

    def test_rules(self) -> None:
        """They are read as they are written, in their order."""
        settings = parse(
            '[egress]\ndefault = "deny"\ncontents = "named"\n'
            '[[egress.rules]]\nverdict = "deny"\nkinds = ["secret"]\nnamespaces = ["pay*"]\npeer-labels = "!trusted"\n'
            '[[egress.rules]]\nverdict = "allow"\npeers = ["milan"]\nlabels = "tier in (web, db)"\n',
            {},
        ).egress
        self.assertEqual(settings.contents, "named")
        to_milan = egress_to("milan", {}, settings)
        for kind, namespace, labels, stays in (
            ("secret", "payments", {"tier": "web"}, "rule 1"),
            ("secret", "shop", {"tier": "web"}, ""),
            ("pod", "payments", {"tier": "db"}, ""),
            ("pod", "shop", {}, "no rule"),
        ):
            found = to_milan.objection(kind, namespace, labels)
            self.assertTrue(found.startswith(stays) if stays else found == "", (kind, namespace, found))
        trusted = egress_to("milan", {"trusted": ""}, settings)
        self.assertEqual(trusted.objection("secret", "payments", {"tier": "db"}), "")
        self.assertTrue(egress_to("rome", {"trusted": ""}, settings).objection("pod", "shop", {"tier": "web"}))

    def test_what_is_no_rule(self) -> None:
        """Each complaint names the rule and the field."""
        problems = self.problems(
            '[egress]\nrules = [{verdict = "maybe"}, {kinds = ["pod"]}, {verdict = "deny", kinds = ["node"]},\n'
            '{verdict = "deny", namespaces = ["Shop"], peers = [""], labels = "a b", peer-labels = ","}]\n'
        )
        for where in ("rules[0].verdict", "rules[1].verdict", "rules[2].kinds"):
            self.assertEqual(len([one for one in problems if one.startswith(f"egress.{where}")]), 1, problems)
        text = '{verdict = "deny", namespaces = ["Shop"], peers = [""], labels = "a b", peer-labels = "=x"}'
        problems = self.problems(f"[egress]\nrules = [{text}]\n")
        fields = [one.split(" = ")[0].removeprefix("egress.rules[0].") for one in problems]
        self.assertEqual(fields, ["namespaces", "peers", "labels", "peer-labels"])

    def test_too_many(self) -> None:
        """Each rule is tried for each object."""
        rules = ",".join(['{verdict = "deny"}'] * (MAX_RULES + 1))
        self.assertEqual(len(self.problems(f"[egress]\nrules = [{rules}]\n")), 1)


class MetricsTests(SynchronousTestCase):
    """Who reads the metrics, and over what."""

    def problems(self, metrics: str, more: str = "") -> list[str]:
        try:
            parse(f"[metrics]\n{metrics}\n{more}", {})
        except SettingsError as error:
            return error.problems
        return []

    def test_elsewhere_than_at_loopback(self) -> None:
        """Any address that others reach needs both TLS and authentication; the complaint says so in one sentence."""
        for listen in (
            "tcp:5874",
            "tcp:5874:interface=0.0.0.0",
            "tcp:5874:interface=10.0.0.1",
            r"tcp6:5874:interface=\\:\\:",
            "tcp:5874:10.0.0.1",
            "tcp:5874:interface=",
            "tcp:5874:interface=localhost.example",
            "systemd:domain=INET:name=liqod",
        ):
            for more in ("", '\ntls = "own"', '\nauthentication = "kubernetes"'):
                (problem,) = self.problems(f'listen = "{listen}"{more}')
                self.assertIn("metrics.listen = ", problem)
                self.assertIn('needs tls ("own" or "files") and authentication', problem)
                self.assertNotIn("\n", problem)
            self.assertEqual(self.problems(f'listen = "{listen}"\ntls = "own"\nauthentication = "kubernetes"'), [])

    def test_at_loopback(self) -> None:
        """Programs of this host need neither; with one of the two they may be asked for it."""
        for listen in (
            "",
            "tcp:5874:interface=127.0.0.1",
            "tcp:5874:interface=127.1.2.3",
            "tcp:interface=localhost:port=5874",
            r"tcp6:5874:interface=\\:\\:1",
            "unix:/run/liqod/metrics",
        ):
            for more in ("", '\ntls = "own"', '\nauthentication = "kubernetes"'):
                self.assertEqual(self.problems(f'listen = "{listen}"{more}'), [], listen)

    def test_an_endpoint_that_is_none(self) -> None:
        """It is complained of once, as what it is."""
        (problem,) = self.problems('listen = "tcp:x"')
        self.assertIn("must have a port", problem)

    def test_files_belong_together(self) -> None:
        """What is named must be used, and what is used must be named."""
        for text, names in (
            ('tls = "files"', ["metrics.certificate", "metrics.key"]),
            ('tls = "files"\ncertificate = "a"', ["metrics.key"]),
            ('tls = "files"\ncertificate = "a"\nkey = "b"', []),
            ('certificate = "a"', ["metrics.certificate"]),
            ('tls = "own"\nkey = "b"', ["metrics.key"]),
            ('authentication = "token"', ["metrics.token-file"]),
            ('authentication = "token"\ntoken-file = "c"', []),
            ('authentication = "kubernetes"\ntoken-file = "c"', ["metrics.token-file"]),
        ):
            self.assertEqual([problem.split(" = ")[0] for problem in self.problems(text)], names, text)

    def test_files_that_cannot_be_read(self) -> None:
        """They are named before anything starts."""
        files = '[metrics]\ntls = "files"\ncertificate = "/no/a"\nkey = "/no/b"\n'
        text = f'{files}authentication = "token"\ntoken-file = "/no/c"'
        found = self.assertRaises(SettingsError, parse, text, {}, look_at_files=True).problems
        self.assertEqual(
            [problem.split(" = ")[0] for problem in found],
            ["metrics.certificate", "metrics.key", "metrics.token-file"],
        )

    def test_processes_that_share_the_work(self) -> None:
        """The certificate that daemons have in common is control's: others have one in files, or are at loopback."""
        for more in ('[daemon]\nrole = "names"', '[daemon]\nrole = "network"', '[network]\nrole = "node"'):
            both = 'tls = "own"\nauthentication = "kubernetes"'
            (problem,) = self.problems(f'listen = "tcp:5877"\n{both}', more)
            self.assertIn('metrics.tls = "own"', problem)
            self.assertEqual(self.problems(f'listen = "tcp:5877:interface=127.0.0.1"\n{both}', more), [])
