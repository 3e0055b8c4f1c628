"""How many requests an API server has answered, as it counts them itself."""

from __future__ import annotations

import re
from collections import Counter

from tests.testbed.cluster import Cluster

_LINE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")


def requests(cluster: Cluster, *resources: str) -> Counter[tuple[str, str]]:
    """Return how often each verb was asked for of some resources: ``(verb, resource)`` -> count; all that succeeded."""
    found: Counter[tuple[str, str]] = Counter()
    for line in _LINE.finditer(cluster.kubectl("get", "--raw=/metrics")):
        labels = dict(_LABEL.findall(line["labels"]))
        resource = "/".join(part for part in (labels["resource"], labels["subresource"]) if part)
        if resource in resources and labels["code"].startswith("2"):
            found[labels["verb"], resource] += int(float(line["count"]))
    return found


def writes(cluster: Cluster, *resources: str) -> Counter[tuple[str, str]]:
    """Return the same of the verbs that change something."""
    return Counter({key: count for key, count in requests(cluster, *resources).items() if key[0] in WRITES})
