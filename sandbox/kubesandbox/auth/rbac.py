"""Role-based access control: whether roles and bindings allow a request. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import attrs
import msgspec

from kubesandbox.auth.tokens import User
from kubesandbox.kinds import statuses
from kubesandbox.kinds.kinds import Json, Key, Kind

Rule = Mapping[str, Any]


@attrs.frozen
class Access:
    """The authorization attributes of a request: a verb on a resource, or on a non-resource path."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = attrs.field(default="", kw_only=True)
    name: str = attrs.field(default="", kw_only=True)
    path: str = attrs.field(default="", kw_only=True)

    def describe(self) -> str:
        """Return the request in the wording of the refusal."""
        if self.path:
            return f'cannot {self.verb} path "{self.path}"'
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'cannot {self.verb} resource "{resource}" in API group "{self.group}" {where}'


class Roles:
    """Authorizes by roles and bindings, which are read through callables and so always current."""

    def __init__(self, items: Callable[[str, str], Sequence[Mapping[str, Any]]]) -> None:
        """``items(plural, namespace)`` returns the objects of an RBAC kind."""
        self._items = items

    def allow(self, user: User, access: Access) -> bool:
        """Return whether the user is allowed; members of ``system:masters`` are always allowed."""
        if "system:masters" in user.groups:
            return True
        return any(rule_allows(rule, access) for rule in self.rules_of(user, access.namespace))

    def rules_of(self, user: User, namespace: str) -> Iterator[Rule]:
        """Yield the rules that bind a user, cluster-wide and in a namespace."""
        for binding in self._items("clusterrolebindings", ""):
            if _binds(binding, user, ""):
                yield from self._rules(binding["roleRef"], "")
        if namespace:
            for binding in self._items("rolebindings", namespace):
                if _binds(binding, user, namespace):
                    yield from self._rules(binding["roleRef"], namespace)

    def check_grant(self, user: User, kind: Kind, key: Key, body: Json) -> None:
        """Raise ApiStatus for a role, or a binding to one, that grants more than its writer has (escalation)."""
        if kind.group != "rbac.authorization.k8s.io" or "system:masters" in user.groups:
            return
        binding = kind.plural.endswith("bindings")
        verb, target = ("bind", body["roleRef"]["name"]) if binding else ("escalate", key.name)
        role = "roles" if (body.get("roleRef") or body).get("kind") == "Role" else "clusterroles"
        if self.allow(user, Access(verb, kind.group, role, namespace=key.namespace, name=target)):
            return
        held = list(self.rules_of(user, key.namespace))
        wanted = list(self._rules(body["roleRef"], key.namespace)) if binding else body.get("rules") or []
        missing = [rule for rule in wanted if not covers(held, rule)]
        if missing:
            listed = "\n".join(_shown(rule) for rule in missing)
            groups = " ".join(f'"{group}"' for group in user.groups)
            deed = "is attempting to grant RBAC permissions not currently held"
            why = f'user "{user.name}" (groups=[{groups}]) {deed}:\n{listed}'
            raise statuses.forbidden(kind.resource, key.name, why)

    def _rules(self, reference: Mapping[str, Any], namespace: str) -> Iterator[Rule]:
        where = ("roles", namespace) if reference.get("kind") == "Role" else ("clusterroles", "")
        for role in self._items(*where):
            if role["metadata"]["name"] == reference.get("name"):
                yield from role.get("rules") or ()
                yield from self._aggregated(role)

    def _aggregated(self, role: Mapping[str, Any]) -> Iterator[Rule]:
        for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
            wanted = (selector.get("matchLabels") or {}).items()
            for other in self._items("clusterroles", ""):
                labels = other["metadata"].get("labels") or {}
                if wanted and all(labels.get(key) == value for key, value in wanted):
                    yield from other.get("rules") or ()


def _shown(rule: Rule) -> str:
    fields = (("APIGroups", "apiGroups"), ("Resources", "resources"), ("ResourceNames", "resourceNames"),
              ("NonResourceURLs", "nonResourceURLs"), ("Verbs", "verbs"))  # fmt: skip
    parts = [f"{label}:{msgspec.json.encode(rule[name]).decode()}" for label, name in fields if rule.get(name)]
    return "{" + ", ".join(parts) + "}"


def _binds(binding: Mapping[str, Any], user: User, namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        match subject.get("kind"):
            case "User":
                found = subject.get("name") == user.name
            case "Group":
                found = subject.get("name") in user.groups
            case "ServiceAccount":
                space = subject.get("namespace") or namespace
                found = user.name == f"system:serviceaccount:{space}:{subject.get('name')}"
            case _:
                found = False
        if found:
            return True
    return False


def rule_allows(rule: Rule, access: Access) -> bool:
    """Return whether one rule covers a request."""
    if not _has(rule.get("verbs"), access.verb):
        return False
    if access.path:
        return any(
            path in ("*", access.path) or (path.endswith("*") and access.path.startswith(path[:-1]))
            for path in rule.get("nonResourceURLs") or ()
        )
    if not _has(rule.get("apiGroups"), access.group):
        return False
    resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    resources = rule.get("resources") or ()
    if not (_has(resources, resource) or (access.subresource and f"*/{access.subresource}" in resources)):
        return False
    names = rule.get("resourceNames") or ()
    return not names or access.name in names


def _has(words: Sequence[str] | None, word: str) -> bool:
    return words is not None and ("*" in words or word in words)


def covers(rules: Sequence[Rule], wanted: Rule) -> bool:
    """Return whether rules together grant everything that one rule grants, for the escalation check."""
    return all(any(rule_allows(rule, access) for rule in rules) for access in _granted_by(wanted))


def _granted_by(rule: Rule) -> Iterator[Access]:
    """Yield everything that one rule grants."""
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield Access(verb, path=path)
        for group, resource in product(rule.get("apiGroups") or (), rule.get("resources") or ()):
            plural, _, sub = resource.partition("/")
            for name in rule.get("resourceNames") or [""]:
                yield Access(verb, group, plural, sub, name=name)
