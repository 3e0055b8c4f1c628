"""What profiles are read as: folded stacks, what they are spent on, and the picture."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.offloading import flame
from benchmarks.offloading.profile import durations, request_rows

TRACES = """File: kube-apiserver
Type: cpu
Duration: 60s, Total samples = 1.25s ( 2.08%)
-----------+-------------------------------------------------------
      10ms   runtime.memmove
             k8s.io/apiserver/pkg/admission/plugin/resourcequota.(*quotaEvaluator).checkQuotas
             net/http.(*conn).serve
-----------+-------------------------------------------------------
     1.20s   crypto/tls.(*Conn).Write
             net/http.(*conn).serve
-----------+-------------------------------------------------------
      40ms   crypto/tls.(*Conn).Write
             net/http.(*conn).serve
"""
AROUND = (
    "net/http.(*conn).serve",
    "net/http.HandlerFunc.ServeHTTP",
    "k8s.io/apiserver/pkg/endpoints/filters.withAuthentication.func1",
    "k8s.io/apiserver/pkg/server/filters.(*priorityAndFairnessHandler).Handle.func9",
    "k8s.io/apiserver/pkg/endpoints/filters.withAuthorization.func1",
)
"""What is around the work of every request, outermost first."""
AUTH = "authentication and authorization"

METRICS = """# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_bucket{resource="pods",verb="POST",le="0.005"} 7
apiserver_request_duration_seconds_sum{group="",resource="pods",subresource="",verb="POST"} 0.5
apiserver_request_duration_seconds_count{group="",resource="pods",subresource="",verb="POST"} 10
apiserver_request_duration_seconds_sum{resource="pods",subresource="status",verb="PATCH"} 0.25
apiserver_request_duration_seconds_count{resource="pods",subresource="status",verb="PATCH"} 10
apiserver_request_duration_seconds_sum{resource="pods",subresource="",verb="WATCH"} 9000
apiserver_request_duration_seconds_count{resource="pods",subresource="",verb="WATCH"} 3
"""


class FlameTests(SynchronousTestCase):
    """Two samplers, one form."""

    def test_go(self) -> None:
        """Go prints the innermost frame first; equal stacks are one."""
        stacks = flame.of_go(TRACES)
        self.assertEqual(stacks["net/http.(*conn).serve", "crypto/tls.(*Conn).Write"], 1240.0)
        self.assertEqual(sum(stacks.values()), 1250.0)

    def test_python(self) -> None:
        """Each line is a stack and a count of samples; what is none is left out."""
        stacks = flame.of_python("main (a.py);step (b.py) 3\nmain (a.py) 1\nbroken\n", 10.0)
        self.assertEqual(stacks, {("main (a.py)", "step (b.py)"): 30.0, ("main (a.py)",): 10.0})

    def test_parts(self) -> None:
        """What a stack counts as is its most particular frame, not what called that; the most is first."""
        self.assertEqual(list(flame.parts(flame.of_go(TRACES)).items()), [("TLS and HTTP", 1240.0), ("quota", 10.0)])
        self.assertEqual(flame.parts({("main.work",): 2.0}), {flame.OTHER: 2.0})

    def test_what_is_around_every_request(self) -> None:
        """Filters, and the server that calls them, are in every stack, and are what none of them is spent on."""
        api, quota = "k8s.io/apiserver/pkg", "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
        handler = f"{api}/endpoints/handlers.createHandler.func1"
        for inner, part in (
            (("runtime.memmove",), flame.OTHER),
            ((handler, "runtime.mallocgc"), "request handlers"),
            ((handler, "encoding/json.Marshal", "runtime.mallocgc"), "JSON and other encodings"),
            ((handler, "encoding/json.Marshal", "runtime.gcAssistAlloc"), "garbage collection"),
            ((handler, f"{api}/storage/cacher.(*Cacher).Create", f"{api}/storage/etcd3.(*store).Create"), "storage"),
            ((f"{api}/endpoints/handlers.(*WatchServer).HandleHTTP", "runtime.mallocgc"), "watches"),
            ((f"{api}/authentication/request/union.(*unionAuthRequestHandler).AuthenticateRequest",), AUTH),
            (("k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac.(*RBACAuthorizer).Authorize",), AUTH),
            ((handler, f"{quota}.(*quotaEvaluator).checkQuotas", "encoding/json.Marshal"), "quota"),
            (("net/http.readRequest",), "TLS and HTTP"),
        ):
            self.assertEqual(flame.parts({(*AROUND, *inner): 2.0}), {part: 2.0}, f"{inner}")

    def test_svg(self) -> None:
        """It is well-formed whatever functions are called, widths add up, and what is too narrow is left out."""
        stacks = {("a<b>&c", "inner"): 750.0, ("other",): 249.9, ("least",): 0.1}
        root = ElementTree.fromstring(flame.svg("all", stacks, unit=10))
        titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
        self.assertEqual(titles, ["all: 100 ms", "a<b>&c: 75 ms", "inner: 75 ms", "other: 25 ms"])
        widths = {one.get("width") for one in root.iter("{http://www.w3.org/2000/svg}rect")}
        self.assertEqual(widths, {"1600.0", "1200.0", "399.8"})

    def test_no_samples(self) -> None:
        """A program that did nothing has a picture too."""
        self.assertIn("nothing", flame.svg("nothing", {}))


class RequestTests(SynchronousTestCase):
    """Requests of an API server's own count."""

    def test_between(self) -> None:
        """What was there before is taken off; watches last for ever, and are no requests of a pod."""
        before = {("POST", "pods"): (5.0, 0.1)}
        rows = request_rows(before, durations(METRICS), 5)
        self.assertEqual(rows, [["POST", "pods", 1.0, 80.0, 80.0], ["PATCH", "pods/status", 2.0, 25.0, 50.0]])
