"""The configuration is read completely, and everything that is wrong with it is said at once."""

from __future__ import annotations

import itertools
import os
import re
import tomllib
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.acceptance.check import check
from liqod.config.load import SettingsError, load, parse
from liqod.config.schema import PeerSettings, Settings
from liqod.model.records.offer import MAX_LABELS, Offer

ROOT = Path(__file__).resolve().parents[2]


class Base(SynchronousTestCase):
    def problems(self, text: str, **environ: str) -> list[str]:
        error: SettingsError = self.assertRaises(SettingsError, parse, text, environ)
        return error.problems


class ReadingTests(Base):
    def test_empty_is_default(self) -> None:
        """An empty file is the defaults."""
        self.assertEqual(parse("", {}), Settings())

    def test_values(self) -> None:
        """Keys are kebab-case, numbers may be whole where fractions are allowed, and tables in lists are typed."""
        text = '[sharing]\nttl = 60\nlimits = {cpu = "4", memory = "8Gi"}\n'
        text += '[[discovery.peers]]\naddress = "10.0.0.1:5872"\n'
        settings = parse(text, {})
        self.assertEqual(settings.sharing.ttl, 60.0)
        self.assertEqual(settings.sharing.limits, {"cpu": "4", "memory": "8Gi"})
        self.assertEqual(settings.discovery.peers, [PeerSettings(address="10.0.0.1:5872")])

    def test_shipped_file(self) -> None:
        """The shipped file names every setting, with its default."""
        text = (ROOT / "etc" / "liqod.toml").read_text()
        self.assertEqual(parse(text, {}), Settings())
        uncommented = re.sub(r"(?m)^#(?=[a-z])", "", text)
        tables = tomllib.loads(uncommented)
        self.assertEqual(tables, msgspec.to_builtins(Settings()))
        self.assertEqual(parse(uncommented, {}), Settings())

    def test_shipped_sentences(self) -> None:
        """Every setting of the shipped file has a sentence right above it."""
        lines = (ROOT / "etc" / "liqod.toml").read_text().splitlines()
        for before, line in itertools.pairwise(lines):
            if re.match(r"#[a-z]", line):
                self.assertRegex(before, r"^# .*[.]$", line)


class EnvironmentTests(Base):
    def test_override(self) -> None:
        """The environment wins over the file, and texts need no quotes there."""
        environ = {"LIQOD_PEERING__LISTEN": "tcp:5900", "LIQOD_PEERING__AUTOJOIN": "false", "LIQOD_OTHER": "x"}
        settings = parse('[peering]\nlisten = "tcp:1"\n', environ)
        self.assertEqual(settings.peering.listen, "tcp:5900")
        self.assertFalse(settings.peering.autojoin)

    def test_lists(self) -> None:
        """Lists and tables are written in the environment as in the file."""
        environ = {"LIQOD_DISCOVERY__PEERS": '[{address = "a:1"}]', "LIQOD_SHARING__LIMITS": '{cpu = "1"}'}
        settings = parse("", environ)
        self.assertEqual(settings.discovery.peers, [PeerSettings(address="a:1")])
        self.assertEqual(settings.sharing.limits, {"cpu": "1"})

    def test_unknown(self) -> None:
        """A variable that names no setting is reported, with the nearest one."""
        problems = self.problems("", LIQOD_PEERING__LISTN="x", LIQOD_PERING__LISTEN="x")
        self.assertEqual(len(problems), 2)
        self.assertIn("did you mean listen?", problems[0])
        self.assertIn("did you mean peering?", problems[1])

    def test_wrong(self) -> None:
        """A value from the environment is checked like one from the file."""
        problems = self.problems("", LIQOD_SHARING__PERCENTAGE="many")
        self.assertEqual(problems, ['sharing.percentage = "many": must be a whole number from 0 to 100'])


class ComplaintsTests(Base):
    def test_all_at_once(self) -> None:
        """Every wrong value is reported in one go, each with its place, its value and what is allowed."""
        problems = self.problems(
            '[sharing]\npercentage = 101\nttl = 0\n[acceptance]\npolicy = "Always"\n[cluster]\nid = "Rome!"\n'
            '[discovery]\nmdns = "yes"\ninterfaces = "eth0"\n[peering]\nmax-sessions = 0\n'
        )
        expected = [
            "sharing.percentage = 101: must be a whole number from 0 to 100",
            "sharing.ttl = 0: must be seconds, more than 0",
            'acceptance.policy = "Always": must be one of "Manual", "AutoAcceptAll", "AutoAcceptMax"',
            'cluster.id = "Rome!": must be lower-case letters',
            'discovery.mdns = "yes": must be true or false',
            'discovery.interfaces = "eth0": must be a list in brackets, each entry a text in quotes',
            "peering.max-sessions = 0: must be a whole number from 1 to 4096",
        ]
        self.assertEqual(len(problems), len(expected), problems)
        for problem, start in zip(problems, expected, strict=True):
            self.assertTrue(problem.startswith(start), problem)

    def test_unknown_keys(self) -> None:
        """Unknown names are reported with the nearest known one, or with the section where they belong."""
        problems = self.problems(
            "percentage = 3\n[peering]\nlisten_ = 1\nttl = 1\n[shareing]\nx = 1\n[cluster]\nzz = 1"
        )
        self.assertEqual(
            problems,
            [
                "percentage: is not a setting of its own; it belongs to [sharing]",
                "peering.listen_: is not a setting; did you mean listen?",
                "peering.ttl: is not a setting; it belongs to [sharing]",
                "[shareing]: is not a section; did you mean sharing?",
                "cluster.zz: is not a setting; there are id, name, domain",
            ],
        )

    def test_section_not_table(self) -> None:
        """A section that is no table is reported as such."""
        self.assertIn("must be a section", self.problems("peering = 3")[0])

    def test_syntax(self) -> None:
        """A syntax error is reported with its line and nothing else."""
        problems = self.problems("[peering]\nlisten = tcp:5872\n")
        self.assertEqual(len(problems), 1)
        self.assertIn("line 2, column", problems[0])

    def test_nested_deeply(self) -> None:
        """What is nested deeper than the parser goes is no traceback, in the file or in the environment."""
        deep = "[" * 2000 + "]" * 2000
        self.assertEqual(self.problems(f"a = {deep}"), ["the configuration: is nested deeper than any setting is"])
        self.assertIn("network.pools", self.problems("", LIQOD_NETWORK__POOLS=deep)[0])

    def test_what_is_said_is_what_is_missing(self) -> None:
        """No complaint names a form that the value has."""
        for text, said in (
            ('[names]\nslot = "1"', "must be one of 1, 2"),
            (f"[hosting]\nlabels = {['a'] * 65}", "of at most 64 entries"),
            (f"[hosting]\nlabels = ['{'a' * 318}']", "a text in quotes of 1 to 317 characters"),
            ('[hosting.tenant-records]\nsecrets = "5"', 'with the keys "shadowpods", "shadowendpointslices"'),
            ("[identity]\nrotation-grace = -1", "seconds, from 0 to 31536000"),
            ("[identity]\nrotation-grace = 1e9", "seconds, from 0 to 31536000"),
        ):
            (problem,) = self.problems(text)
            self.assertIn(said, problem)

    def test_numbers_of_many_digits(self) -> None:
        """Numbers longer than Python reads are no traceback, wherever they stand."""
        many = "1" * 5000
        self.assertIn("too many digits", self.problems(f"[sharing]\npercentage = {many}")[0])
        for text in (
            f"[sharing]\npercentage = 0x{many}",
            f'[sharing]\npercentage = "{many}"',
            f'[peering]\nlisten = "tcp:{many}"',
        ):
            self.assertEqual(len(self.problems(text)), 1)
        self.assertIn("sharing.percentage", self.problems("", LIQOD_SHARING__PERCENTAGE=many)[0])

    def test_line_feeds_at_the_end(self) -> None:
        """A pattern holds for the whole of a text."""
        fingerprint = "sha256:" + "a" * 64
        for section, setting in (
            ("cluster", 'id = "rome\\n"'),
            ("identity", f'revoked = ["{fingerprint}\\n"]'),
            ("network", 'device = "liqod\\n"'),
        ):
            self.assertEqual(len(self.problems(f"[{section}]\n{setting}\n")), 1, setting)

    def test_peers(self) -> None:
        """Peers are checked one by one, with their place in the list."""
        problems = self.problems(
            '[discovery]\npeers = [{address = "a:1"}, {fingerprint = "x"}, '
            '{address = "b", port = 1}, {address = "a:1"}]'
        )
        self.assertEqual(len(problems), 5, problems)
        self.assertIn("discovery.peers[1].fingerprint", problems[0])
        self.assertIn("sha256: and 64 lower-case hex digits", problems[0])
        self.assertIn("discovery.peers[1].address: is missing", problems[1])
        self.assertIn("discovery.peers[2].port: is not a setting", problems[2])
        self.assertIn("must be host:port", problems[3])
        self.assertIn("given once", problems[4])

    def test_not_finite(self) -> None:
        """Durations that are not finite are refused."""
        self.assertEqual(len(self.problems("[sharing]\nttl = nan\n[peering]\nping-interval = inf\n")), 2)

    def test_long_values(self) -> None:
        """A value of any length is shown in a line, without raw control characters."""
        for problem in self.problems(f'[acceptance]\npolicy = "{"x" * 5000}"\n[log]\nlevel = "\\u001b[2J"'):
            self.assertLess(len(problem), 200)
            self.assertNotIn("\x1b", problem)

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.dictionaries(st.sampled_from(["peering", "sharing", "zz", "log"]), st.integers() | st.text(max_size=5)))
    def test_never_another_error(self, tables: dict[str, int | str]) -> None:
        """Whatever stands in the environment, the result is settings or a SettingsError."""
        environ = {f"LIQOD_{name.upper()}__LISTEN": str(value) for name, value in tables.items()}
        try:
            parse("", environ)
        except SettingsError as error:
            self.assertTrue(error.problems)


class SenseTests(Base):
    def test_pairs(self) -> None:
        """A certificate without its key is refused, and the other way round."""
        self.assertIn("identity.key", self.problems('[identity]\ncertificate = "a"')[0])
        self.assertIn("identity.certificate", self.problems('[identity]\nkey = "a"')[0])

    def test_endpoints(self) -> None:
        """Endpoints must be such that Twisted can listen on them."""
        for text in ("", "5872", "tpc:5872", "tcp:", "tcp:x", "tcp:70000", "systemd:INET", "tcp:1:interface=a:b=c"):
            problems = self.problems(f'[peering]\nlisten = "{text}"')
            self.assertEqual(len(problems), 1, text)
            self.assertIn("an endpoint such as tcp:5872", problems[0])
        for text in ("tcp:5872", "tcp:0", "tcp:port=1", "tcp6:5872", "systemd:domain=INET:name=liqod", "unix:/run/x"):
            parse(f'[peering]\nlisten = "{text}"', {})

    def test_same_port(self) -> None:
        """Two listeners may not want the same port, except for port 0."""
        self.assertIn("another port than peering.listen", self.problems('[webhook]\nlisten = "tcp:5872"')[0])
        parse('[webhook]\nlisten = "tcp:0"\n[peering]\nlisten = "tcp:0"\n', {})

    def test_same_port_of_other_addresses(self) -> None:
        """One port on two addresses is two places; all addresses are each of them."""
        for one, other, good in (
            ("tcp:5872:interface=10.0.0.1", "tcp:5872:interface=127.0.0.1", True),
            ("tcp:5872:interface=10.0.0.1", r"tcp6:5872:interface=fd00\\:\\:1", True),
            ("tcp:5872:interface=10.0.0.1", "tcp:port=5872:interface=10.0.0.1", False),
            ("tcp:5872:interface=10.0.0.1", "tcp:5872", False),
            ("tcp:5872:interface=10.0.0.1", "tcp:5872:interface=0.0.0.0", False),
        ):
            text = f'[peering]\nlisten = "{one}"\n[webhook]\nlisten = "{other}"\n'
            if good:
                parse(text, {})
            else:
                self.assertIn("another port than peering.listen", self.problems(text)[0])

    def test_hosts_of_tenants(self) -> None:
        """The place of the tenant is the first label of a name, and never the whole of it."""
        text = '[hosting]\ningress-hosts = ["apps.example", "{tenant}.apps.example"]'
        self.assertEqual(parse(text, {}).hosting.ingress_hosts, ["apps.example", "{tenant}.apps.example"])
        for wrong in (
            "{tenant}",
            "{tenant}.",
            "x.{tenant}.example",
            "{tenant}-x.example",
            "*.example",
            "{peer}.example",
        ):
            (problem,) = self.problems(f'[hosting]\ningress-hosts = ["{wrong}"]')
            self.assertIn("hosting.ingress-hosts", problem)

    def test_gateways(self) -> None:
        """A gateway is named with its namespace."""
        text = '[hosting]\ngateways = ["public/shared"]'
        self.assertEqual(parse(text, {}).hosting.gateways, ["public/shared"])
        for wrong in ("shared", "public/", "/shared", "a.b/shared", "public/a/b", "*/shared", "Public/shared"):
            (problem,) = self.problems(f'[hosting]\ngateways = ["{wrong}"]')
            self.assertIn("hosting.gateways", problem)

    def test_quantities(self) -> None:
        """Limits and prices must be quantities that are not negative."""
        problems = self.problems('[sharing]\nlimits = {cpu = "lots", memory = "-1Gi"}\nprices = {cpu = "0.5x"}')
        self.assertEqual([problem.split(" = ")[0] for problem in problems], [
            "sharing.limits.cpu", "sharing.limits.memory", "sharing.prices.cpu",
        ])  # fmt: skip
        self.assertEqual(parse('[hosting]\ntenant-contents = ""', {}).hosting.tenant_contents, "")
        (problem,) = self.problems('[hosting]\ntenant-contents = "much"')
        self.assertTrue(problem.startswith("hosting.tenant-contents = "), problem)

    def test_amount_of_writes(self) -> None:
        """What a tenant writes in a minute is an amount above 0, or without a bound."""
        self.assertEqual(parse('[hosting]\ntenant-writes = ""', {}).hosting.tenant_writes, "")
        for text in ("much", "0"):
            (problem,) = self.problems(f'[hosting]\ntenant-writes = "{text}"')
            self.assertTrue(problem.startswith("hosting.tenant-writes = "), problem)

    def test_classes_of_slices(self) -> None:
        """Classes are named like labels, and have quantities of resources; there are not too many."""
        classes = '{default = {}, gpu = {cpu = "16", "nvidia.com/gpu" = "2"}}'
        sharing = parse(f"[sharing]\nslice-classes = {classes}", {}).sharing
        self.assertEqual(sharing.slice_classes["gpu"], {"cpu": "16", "nvidia.com/gpu": "2"})
        self.assertEqual(parse("[sharing]\nslice-classes = {}", {}).sharing.slice_classes, {})
        many = ", ".join(f"c{number} = {{}}" for number in range(33))
        for text, where in (
            ("{Big = {}}", "sharing.slice-classes.Big"),
            ('{gpu = {cpu = "-1"}}', "sharing.slice-classes.gpu.cpu"),
            ('{gpu = {"a b" = "1"}}', "sharing.slice-classes.gpu.a b"),
            ("{gpu = 1}", "sharing.slice-classes"),
            (f"{{{many}}}", "sharing.slice-classes"),
        ):
            (problem,) = self.problems(f"[sharing]\nslice-classes = {text}")
            self.assertTrue(problem.startswith(where), problem)

    def test_labels(self) -> None:
        """Labels must be ones that Kubernetes takes."""
        self.assertEqual(len(self.problems('[sharing.labels]\n"a b" = "x"\nc = "not good"')), 2)
        parse('[sharing.labels]\n"topology.kubernetes.io/region" = "eu-south"', {})

    def test_what_every_borrower_would_refuse(self) -> None:
        """What fails the check of a borrower is a mistake in the settings already."""
        many = "".join(f'l{n} = "x"\n' for n in range(MAX_LABELS + 1))
        for text, where in (
            ("[sharing]\nttl = 604801", "sharing.ttl"),
            ("[sharing]\nttl = 0.5", "sharing.ttl"),
            ('[sharing.labels]\n"node-role.kubernetes.io/x" = ""', "sharing.labels.node-role.kubernetes.io/x"),
            (f"[sharing.labels]\n{many}", "sharing.labels"),
        ):
            (problem,) = self.problems(text)
            self.assertTrue(problem.startswith(where), problem)
            self.assertIn("borrowers refuse the offer", problem)

    def test_the_examples_of_the_file(self) -> None:
        """Each example in etc/liqod.toml passes the checks of both sides."""
        text = (ROOT / "etc/liqod.toml").read_text()
        (example,) = re.findall(r"the virtual node gets at the borrower, such as (\{.*?\})", text)
        sharing = parse(f"[sharing]\nlabels = {example}", {}).sharing
        self.assertEqual(check(Offer(labels=sharing.labels)).labels, sharing.labels)

    def test_addresses(self) -> None:
        """Addresses must be of the shape that their setting needs."""
        problems = self.problems(
            '[peering]\nadvertise-addresses = ["10.0.0.1", "2001:db8::1", "10.0.0.1:5872", "300.1.1.1"]\n'
            '[kubernetes]\napi-server-url = "10.0.0.1:6443"\n[webhook]\nurl = "http://x"\nservice = "x:99999"\n'
            '[kubelet]\nnode-address = "rome"\nsigner = "kubelet-serving"\n'
        )
        self.assertEqual(
            [problem.split(" = ")[0] for problem in problems],
            [
                "kubernetes.api-server-url",
                "peering.advertise-addresses[2]",
                "peering.advertise-addresses[3]",
                "kubelet.node-address",
                "kubelet.signer",
                "webhook.url",
                "webhook.service",
                "webhook.service",
            ],
        )
        for url in (
            "https://203.0.113.7:6443\\n",
            "https://203.0.113.7:6443/?a=b",
            "https://me:secret@203.0.113.7:6443",
            "https://169.254.169.254",
        ):
            (problem,) = self.problems(f'[kubernetes]\napi-server-url = "{url}"\n')
            self.assertIn("borrowers refuse this one", problem)
        for service in ("liqo/hook", "liqo/hook:65535"):
            self.assertEqual(parse(f'[webhook]\nservice = "{service}"\n', {}).webhook.service, service)
        for service in ("hook", "liqo/hook:0", "liqo/hook:65536", "liqo/hook:x", "Liqo/hook"):
            self.assertIn("webhook.service", self.problems(f'[webhook]\nservice = "{service}"\n')[0])

    def test_networks(self) -> None:
        """Networks have no host bits, and the tunnel is reached at an address with a port."""
        text = '[network]\npod-cidrs = ["10.1.2.3/16"]\npools = ["all"]\nendpoints = ["example.org:5871"]\n'
        problems = self.problems(text)
        self.assertEqual(len(problems), 3)
        for key in ("network.pod-cidrs", "network.pools", "network.endpoints"):
            self.assertTrue(any(key in problem for problem in problems), problems)

    def test_addresses_of_servers(self) -> None:
        """A server of DNS is at an address, and has a port where that is another one than 53."""
        for text in ("10.96.0.10", "10.96.0.10:5353", "fd00::a", "[fd00::a]", "[fd00::a]:5353"):
            for section, key in (("discovery", "dns-servers"), ("names", "upstream")):
                self.assertTrue(parse(f'[{section}]\n{key} = ["{text}"]\n', {}))
        self.assertTrue(parse('[discovery]\ndns-servers = ["dns.example:53"]\n', {}))
        many = "1" * 5000
        for text in ("10.96.0.10:\u0665\u0663", "[10.96.0.10]:53", "[fd00::a:53", "fd00:1:2:3:4:5:6:7:53", f"a:{many}"):
            for section, key in (("discovery", "dns-servers"), ("names", "upstream")):
                self.assertIn(f"{section}.{key}", self.problems(f'[{section}]\n{key} = ["{text}"]\n')[0])
        self.assertIn("names.upstream", self.problems('[names]\nupstream = ["dns.example:53"]\n')[0])
        peers = f'[[discovery.peers]]\naddress = "a.example:{many}"\n'
        self.assertIn("discovery.peers[0].address", self.problems(peers)[0])

    def test_lease(self) -> None:
        """After a renewal there is time for the next one, and for a second attempt, before the lead ends."""
        for text, key in (
            ("lease-duration = 3", "renew-interval"),
            ("lease-duration = 4\nrenew-interval = 3.0", "renew-interval"),
            ("lease-duration = 10\nrenew-interval = 9.9", "renew-interval"),
            ("lease-duration = 10\nretry-interval = 5.6", "retry-interval"),
        ):
            self.assertIn(f"leader.{key}", self.problems(f"[leader]\n{text}")[0])
        parse("[leader]\nlease-duration = 10\nrenew-interval = 5.0\nretry-interval = 5.5", {})


class FilesTests(Base):
    def test_missing(self) -> None:
        """A file that is not there is named, with how to name another."""
        problems = self.assertRaises(SettingsError, load, "/nonexistent/liqod.toml", {}).problems
        self.assertEqual(
            problems, ["/nonexistent/liqod.toml: no such file or directory; name the configuration with --config"]
        )

    def test_directory(self) -> None:
        """A directory is no configuration."""
        self.assertIn("is a directory", self.assertRaises(SettingsError, load, "/", {}).problems[0])

    def test_not_text(self) -> None:
        """Bytes that are no UTF-8 are reported with their line."""
        path = self.mktemp()
        Path(path).write_bytes(b"# fine\n[peering]\n\xff")
        self.assertIn("line 3: is not UTF-8", self.assertRaises(SettingsError, load, path, {}).problems[0])

    def test_named_files(self) -> None:
        """Files that the settings name must be readable."""
        path = self.mktemp()
        Path(path).write_text('[identity]\nca = "/nonexistent/ca.pem"\n')
        problems = self.assertRaises(SettingsError, load, path, {}).problems
        self.assertEqual(len(problems), 1)
        self.assertIn('identity.ca = "/nonexistent/ca.pem"', problems[0])

    def test_names_that_no_file_has(self) -> None:
        """A home of nobody and a NUL are mistakes like a file that is not there."""
        for name in ("~nosuchuser/ca.pem", "a\\u0000b"):
            (problem,) = self.load_problems(f'[identity]\nca = "{name}"\n')
            self.assertIn("identity.ca", problem)
        self.assertIn("audit.file", self.problems('[audit]\nfile = "a\\u0000b"')[0])

    def test_several_kubeconfigs(self) -> None:
        """A list as in $KUBECONFIG is read file by file."""
        one, other = self.mktemp(), self.mktemp()
        for path in (one, other):
            Path(path).touch()
        (problem,) = self.load_problems(f'[kubernetes]\nkubeconfig = "{one}:/nonexistent:{other}"\n')
        self.assertIn('kubernetes.kubeconfig = "/nonexistent"', problem)

    def load_problems(self, text: str) -> list[str]:
        path = self.mktemp()
        Path(path).write_text(text)
        return list(self.assertRaises(SettingsError, load, path, {}).problems)

    def test_good_file(self) -> None:
        """A good file gives its settings."""
        path = self.mktemp()
        Path(path).write_text("[sharing]\npercentage = 50\n")
        os.chmod(path, 0o400)
        self.assertEqual(load(path, {}).sharing.percentage, 50)
