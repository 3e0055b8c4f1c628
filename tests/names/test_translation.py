"""Names of home and of the lender: which are asked for, and what of an answer is passed on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.names.translation import PTR, Empty, Forward, Reverse, TenantView, Translate, plan, translate_back
from tests.names.cases import VIEW

SAME = TenantView("cluster.local", "cluster.local", VIEW.remote)
LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9_]{0,10}[a-z0-9])?", fullmatch=True)
DOMAIN = st.lists(LABEL, min_size=1, max_size=3).map(".".join)
REMOTE = st.dictionaries(LABEL, LABEL, max_size=5).map(
    lambda found: {home: f"{home}-{here}" for home, here in found.items()}
)
VIEWS = st.builds(TenantView, DOMAIN, DOMAIN, REMOTE)


class PlanTests(SynchronousTestCase):
    def test_forms_of_home(self) -> None:
        """Services, pods of a StatefulSet, ports and addresses of home are asked for in the namespace made for it."""
        for view in (VIEW, SAME):
            for before in ("cache", "pg-0.pg", "_http._tcp.web", "10-1-2-3.web"):
                wanted = Translate(f"{before}.shop-rome.svc.cluster.local")
                self.assertEqual(plan(f"{before}.shop.svc.{view.home}", 1, view), wanted)
            self.assertEqual(
                plan(f"10-1-2-3.db.pod.{view.home}", 1, view), Translate("10-1-2-3.db-rome.pod.cluster.local")
            )

    def test_names_above_exist(self) -> None:
        """What is above a service is there, without records: a resolver may take that nothing is below (RFC 8020)."""
        for name in ("home.example", "svc.home.example", "pod.home.example", "shop.svc.home.example"):
            self.assertEqual(plan(name, 1, VIEW), Empty(exists=True))

    def test_nothing_of_others(self) -> None:
        """Neither other namespaces nor the lender's own names are asked for, by any of their names."""
        names = (
            "kubernetes.default.svc.cluster.local",
            "cache.shop-rome.svc.cluster.local",
            "web.shop-paris.svc.cluster.local",
            "shop-paris.svc.cluster.local",
            "svc.cluster.local",
            "dns-version.cluster.local",
            "_any._tcp.any.any.svc.cluster.local",
            "ns.dns.cluster.local",
            "cluster.local",
        )
        for name in names:
            self.assertEqual(plan(name, 1, VIEW), Empty(exists=False))
        for name in ("web.other.svc.home.example", "x.node.home.example", "*.shop.svc.home.example"):
            self.assertEqual(plan(name, 1, VIEW), Empty(exists=False))
        for name in ("kubernetes.default.svc.cluster.local", "cache.shop-rome.svc.cluster.local"):
            self.assertEqual(plan(name, 1, SAME), Empty(exists=False))

    def test_public(self) -> None:
        """Everything else goes on as it is, names that only end alike too."""
        for name in ("example.com", "", "local", "notcluster.local", "cluster.local.example.com"):
            self.assertEqual(plan(name, 1, VIEW), Forward())

    def test_reverse(self) -> None:
        """Of whole addresses it is asked whose they are; zones above are there and say nothing."""
        self.assertEqual(plan("1.0.96.10.in-addr.arpa", PTR, VIEW), Reverse(closed=True))
        self.assertEqual(plan("8.8.8.8.in-addr.arpa", PTR, VIEW), Reverse(closed=False))
        six = ".".join("1" + "0" * 27 + "01df") + ".ip6.arpa"
        self.assertEqual(plan(six, PTR, VIEW), Reverse(closed=True))
        others = ("10.in-addr.arpa", "in-addr.arpa", "x.0.96.10.in-addr.arpa", "300.0.0.1.in-addr.arpa", "ip6.arpa")
        for name in (*others, f"{six[:62]}+.ip6.arpa", f"{six[:60]}_{six[61:]}", "12" + six[3:]):
            self.assertEqual(plan(name, PTR, VIEW), Empty(exists=True))
        self.assertEqual(plan("1.0.96.10.in-addr.arpa", 255 - 249, VIEW), Empty(exists=True))

    def test_too_long(self) -> None:
        """A name that would be too long here cannot exist here."""
        name = ".".join(["a" * 63] * 3 + ["b" * 35]) + ".shop.svc.home.example"
        self.assertLessEqual(len(name), 253)
        longer = TenantView("home.example", "a-much-longer-domain.cluster.local", VIEW.remote)
        self.assertEqual(plan(name, 1, longer), Empty(exists=False))

    @given(VIEWS, st.data())
    def test_there_and_back(self, view: TenantView, data: st.DataObject) -> None:
        """Whatever is asked for here is answered under the name that it was asked by."""
        namespace = data.draw(st.sampled_from(sorted(view.remote)) if view.remote else LABEL)
        before = ".".join(data.draw(st.lists(LABEL, min_size=1, max_size=3)))
        name = f"{before}.{namespace}.svc.{view.home}"
        todo = plan(name, 1, view)
        self.assertEqual(isinstance(todo, Translate), namespace in view.remote)
        if isinstance(todo, Translate):
            self.assertEqual(translate_back(todo.name, view), name)

    @given(VIEWS, st.data(), st.integers(1, 65535))
    def test_only_own_namespaces(self, view: TenantView, data: st.DataObject, kind: int) -> None:
        """No name below the lender's domain is asked for but those in the tenant's own namespaces."""
        labels = st.one_of(LABEL, st.sampled_from(["svc", "pod", "any", "*", "kube-system", *view.remote.values()]))
        before = ".".join(data.draw(st.lists(labels, max_size=6)))
        end = data.draw(st.sampled_from([view.home, view.lender, f"svc.{view.lender}", f"svc.{view.home}", "com"]))
        name = f"{before}.{end}".strip(".")
        todo = plan(name, kind, view)
        asked = todo.name if isinstance(todo, Translate) else name if isinstance(todo, Forward) else ""
        if asked == view.lender or asked.endswith(f".{view.lender}"):
            *_, namespace, kind_of = asked.removesuffix(f".{view.lender}").split(".")
            self.assertIn(kind_of, ("svc", "pod"))
            self.assertIn(namespace, view.remote.values())


class BackTests(SynchronousTestCase):
    def test_back(self) -> None:
        """Names of the tenant's namespaces are as at home, public ones as they are, all others not at all."""
        table = {
            "cache.shop-rome.svc.cluster.local": "cache.shop.svc.home.example",
            "pg-0.pg.db-rome.svc.cluster.local": "pg-0.pg.db.svc.home.example",
            "www.example.com": "www.example.com",
            "kubernetes.default.svc.cluster.local": None,
            "cluster.local": None,
            "shop-rome.svc.cluster.local": "shop.svc.home.example",
            "x.shop-rome.nodes.cluster.local": None,
        }
        for name, wanted in table.items():
            self.assertEqual(translate_back(name, VIEW), wanted, name)
