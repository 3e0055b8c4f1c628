"""Serving certificates: what they are good for, and when they change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.trial.unittest import SynchronousTestCase

from liqod.identity.serving import from_data, generate, is_due, names_of, request, to_data
from liqod.webhook.configuration import Configuration, forge, matches, service_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class CertificateTests(SynchronousTestCase):
    def test_it_verifies(self) -> None:
        """The leaf is signed by the CA, names addresses and hosts, and survives being kept in a Secret."""
        bundle = generate("liqod", ["10.0.0.1", "fd00::1", "liqod.example"], NOW)
        leaf = x509.load_pem_x509_certificate(bundle.certificate_pem)
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(bundle.ca_pem))
        self.assertEqual(names_of(bundle), {"10.0.0.1", "fd00::1", "liqod.example"})
        self.assertEqual(from_data(to_data(bundle)), bundle)
        self.assertNotIn("PRIVATE", repr(bundle))

    def test_when_it_is_due(self) -> None:
        """A leaf is made again when it nears its end or is called by another name, not before."""
        bundle = generate("liqod", ["10.0.0.1"], NOW)
        self.assertFalse(is_due(bundle, ["10.0.0.1"], NOW + timedelta(days=59)))
        self.assertTrue(is_due(bundle, ["10.0.0.1"], NOW + timedelta(days=61)))
        self.assertTrue(is_due(bundle, ["10.0.0.2"], NOW))

    def test_an_address_in_another_spelling(self) -> None:
        """An address is the same one in each spelling."""
        for host in ("2001:DB8:0::1", "fe80::1%eth0"):
            self.assertFalse(is_due(generate("liqod", [host], NOW), [host], NOW), host)

    def test_a_ca_with_another_kind_of_key_signs_nothing(self) -> None:
        """What somebody put into the Secret is not used for what clients could not verify."""
        rsa_key = rsa.generate_private_key(65537, 2048)
        pem = rsa_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        former = attrs.evolve(generate("liqod", ["10.0.0.1"], NOW), ca_key_pem=pem)
        with self.assertRaises(ValueError):
            generate("liqod", ["10.0.0.1"], NOW, former)

    def test_the_old_ca_stays_trusted(self) -> None:
        """A renewed leaf keeps the CA; a CA near its end is replaced, and both are trusted then."""
        first = generate("liqod", ["10.0.0.1"], NOW)
        second = generate("liqod", ["10.0.0.1"], NOW + timedelta(days=70), first)
        self.assertEqual(second.ca_pem, first.ca_pem)
        late = NOW + timedelta(days=3600)
        third = generate("liqod", ["10.0.0.1"], late, second)
        self.assertNotEqual(third.ca_pem, first.ca_pem)
        self.assertEqual(third.trusted_pem, third.ca_pem + first.ca_pem)
        self.assertEqual(generate("liqod", ["10.0.0.1"], late, third).trusted_pem, third.trusted_pem)

    def test_a_request(self) -> None:
        """A request names who is to be certified, and is signed by the key that comes with it."""
        wanted, key = request("system:node:x", "system:nodes", ["10.0.0.1"])
        parsed = x509.load_pem_x509_csr(wanted)
        self.assertTrue(parsed.is_signature_valid)
        self.assertEqual(parsed.subject.rfc4514_string(), "CN=system:node:x,O=system:nodes")
        self.assertIn(b"PRIVATE KEY", key)

    def test_what_cannot_be_used(self) -> None:
        """Secrets that are incomplete or broken are distinguished from good ones by ValueError."""
        good = to_data(generate("liqod", ["10.0.0.1"], NOW))
        for broken in ({}, {**good, "tls.key": "AAAA"}, {**good, "tls.crt": "!"}, {**good, "ca.crt": good["tls.key"]}):
            with self.assertRaises(ValueError):
                from_data(broken)


class ConfigurationTests(SynchronousTestCase):
    def test_defaults_do_not_count(self) -> None:
        """A configuration with fields the API server added says the same; another CA or a second webhook does not."""
        wanted = forge("https://10.0.0.1:5873/mutate/pod", b"pem")
        found = Configuration(webhooks=[{**wanted["webhooks"][0], "objectSelector": {}}])
        self.assertTrue(matches(found, wanted))
        self.assertFalse(matches(None, wanted))
        self.assertFalse(matches(found, forge("https://10.0.0.1:5873/mutate/pod", b"other")))
        self.assertFalse(matches(Configuration(webhooks=found.webhooks * 2), wanted))

    def test_what_providers_add_stays(self) -> None:
        """What others add to the selector is kept by key, ours is put right, and nobody writes in turns."""
        theirs = {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]}
        url = "https://10.0.0.1:5873/mutate/pod"
        plain = forge(url, b"pem")["webhooks"][0]
        ours = {"liqo.io/enabled": "true"}
        for labels, expressions, kept, same in (
            (ours, [theirs], [theirs], True),
            ({**ours, "env": "x"}, [], [], True),
            ({"liqo.io/enabled": "false"}, [theirs], [theirs], False),
            (ours, [{"key": "liqo.io/enabled", "operator": "DoesNotExist"}, theirs], [theirs], False),
            (None, None, [], False),
        ):
            selector: dict[str, Any] = {"matchLabels": labels, "matchExpressions": expressions}
            found = Configuration(webhooks=[{**plain, "namespaceSelector": _given(selector)}])
            wanted = forge(url, b"pem", None, found)
            self.assertEqual(matches(found, wanted), same)
            now = wanted["webhooks"][0]["namespaceSelector"]
            self.assertEqual(now["matchLabels"], {**(labels or {}), **ours})
            self.assertEqual(now.get("matchExpressions", []), kept)
            after = Configuration(webhooks=wanted["webhooks"])
            self.assertTrue(matches(after, forge(url, b"pem", None, after)))

    def test_by_a_service(self) -> None:
        """A Service is called by its name and port, with the path of the webhook."""
        for text, port in (("liqo/hook", 443), ("liqo/hook:5873", 5873)):
            service = service_of(text)
            assert service is not None
            client = forge("https://10.0.0.1:5873/mutate/pod", b"pem", service)["webhooks"][0]["clientConfig"]
            wanted = {"namespace": "liqo", "name": "hook", "port": port, "path": "/mutate/pod"}
            self.assertEqual(client, {"caBundle": "cGVt", "service": wanted})
            self.assertEqual(service.host, "hook.liqo.svc")
        self.assertIsNone(service_of(""))


def _given(selector: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in selector.items() if value}
