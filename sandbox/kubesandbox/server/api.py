"""The verbs on single objects, after authentication and authorization.

Every verb decodes, applies defaults, admits, validates and stores. Coroutines suspend only to call a webhook; without
webhooks they finish in one turn, so in-process callers (controllers, scheduler, nodes) need no round trip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from kubesandbox.auth.tokens import User
from kubesandbox.kinds import defaults, runtime_class, schema, statuses, validation
from kubesandbox.kinds.catalog import Catalog
from kubesandbox.kinds.kinds import (
    NAMESPACES,
    NODES,
    PODS,
    RUNTIMECLASSES,
    SERVICEACCOUNTS,
    SERVICES,
    Json,
    Key,
    Kind,
)
from kubesandbox.kinds.pod_security import violations
from kubesandbox.kinds.statuses import ApiStatus, Cause
from kubesandbox.server.requests import Caller, DeleteOptions, Review, Webhooks
from kubesandbox.store import apply as ssa
from kubesandbox.store import bodies
from kubesandbox.store.state import Store, Stored

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_TERMINAL: Final = ("Succeeded", "Failed")
_NEEDS_VERSION: Final = frozenset({"leases", "customresourcedefinitions"})
_ATTEMPTS: Final = 5


class Api:
    """The verbs on single objects.

    ``wall`` returns seconds since 1970, ``fresh_uid`` a new UID, ``pick`` a random text of n characters. ``grants`` is
    asked whether a user may write a role or binding, and raises ApiStatus when not.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        *,
        wall: Callable[[], float],
        fresh_uid: Callable[[], str],
        pick: Callable[[str, int], str],
    ) -> None:
        self.store = store
        self.catalog = catalog
        self.wall = wall
        self.webhooks: Webhooks | None = None
        self.grants: Callable[[User, Kind, Key, Json], None] = lambda user, kind, key, body: None
        self._fresh_uid = fresh_uid
        self._pick = pick
        self._service_number = 1

    def now(self) -> str:
        return bodies.timestamp(self.wall())

    def suffix(self, length: int = 5) -> str:
        """Return a random end for a name."""
        return self._pick(_SUFFIX, length)

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return an object as it is stored; raises NotFound."""
        found = self.store.get(kind.resource, Key(namespace, name))
        if found is None:
            raise statuses.not_found(kind.resource, name)
        return found

    def put_system(self, kind: Kind, key: Key, body: Json) -> Stored:
        """Create an object for the control plane itself, without admission; the body is known to be right."""
        namespace = {"namespace": key.namespace} if kind.namespaced else {}
        metadata = {**body["metadata"], **namespace, "name": key.name}
        prepared = self._prepared_to_create(kind, key.namespace, body | {"metadata": metadata})
        if kind.resource == SERVICES:
            prepared = self._with_cluster_ip(prepared)
        return self.store.put(kind.resource, key, prepared)

    # -- create ------------------------------------------------------------------------------------------------------

    async def create(
        self, caller: Caller, kind: Kind, namespace: str, body: Json, *, owners: ssa.Owners | None = None
    ) -> Stored:
        """Create an object from a body whose kind was checked; raises ApiStatus.

        ``owners`` are those of the fields, where they are not simply the caller's.
        """
        body = self._decoded(kind, body, caller)
        metadata = body["metadata"]
        if metadata.get("namespace", namespace) != namespace:
            raise statuses.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if metadata.get("resourceVersion"):
            raise ApiStatus(500, "", "resourceVersion should not be set on objects to be created")
        space = self._namespace_of(kind, namespace, metadata.get("name", ""))
        prepared = self._prepared_to_create(kind, namespace, body)
        if kind.resource == PODS:
            prepared = self._with_runtime_class(prepared)
        key = Key(namespace, prepared["metadata"].get("name", ""))
        review = Review("CREATE", kind, key, "", new=prepared, old=None, caller=caller, namespace=space)
        prepared = await self._mutated(review)
        if kind.resource == PODS:
            prepared = self._with_account(prepared)
        self._validated(kind, prepared, None)
        self._admitted(kind, prepared, space)
        self.grants(caller.user, kind, key, prepared)
        await self._asked(attrs.evolve(review, new=prepared))
        if kind.resource == SERVICES:
            prepared = self._with_cluster_ip(prepared)
        if self.store.get(kind.resource, key) is not None:
            if metadata.get("generateName") and not metadata.get("name"):
                return await self.create(caller, kind, namespace, body)
            raise statuses.already_exists(kind.resource, key.name)
        if owners is None:
            owner = ssa.Owner(caller.manager, "Update", kind.api_version)
            prepared = self._with_owners(kind, prepared, None, owner)
        else:
            prepared = bodies.owned(prepared, owners)
        return self._stored(kind, key, prepared, caller)

    def _prepared_to_create(self, kind: Kind, namespace: str, body: Json) -> Json:
        metadata = {
            name: value
            for name, value in body["metadata"].items()
            if name
            not in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion", "managedFields")
        }
        if kind.namespaced:
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{self.suffix()}"
        metadata["uid"] = self._fresh_uid()
        metadata["creationTimestamp"] = self.now()
        if kind.has_generation:
            metadata["generation"] = 1
        else:
            metadata.pop("generation", None)
        result = body | {"metadata": metadata}
        if kind.resource == NODES:
            result["spec"] = bodies.with_not_ready_taint(result.get("spec") or {})
        elif kind.has_status:
            result.pop("status", None)
        return self._filled(kind, result)

    def _with_runtime_class(self, body: Json) -> Json:
        spec, name = body["spec"], body["metadata"].get("name", "")
        wanted = spec.get("runtimeClassName")
        if wanted is None:
            return body
        found = self.store.get(RUNTIMECLASSES, Key("", wanted))
        if found is None:
            raise statuses.forbidden(PODS, name, f'pod rejected: RuntimeClass "{wanted}" not found')
        try:
            return body | {"spec": runtime_class.scheduled(spec, found.object)}
        except runtime_class.Conflict as error:
            raise statuses.forbidden(PODS, name, str(error)) from None

    def _with_account(self, body: Json) -> Json:
        spec, metadata = body["spec"], body["metadata"]
        account = self.store.get(SERVICEACCOUNTS, Key(metadata["namespace"], spec["serviceAccountName"]))
        if account is None:
            name = spec["serviceAccountName"]
            why = f'error looking up service account {metadata["namespace"]}/{name}: serviceaccount "{name}" not found'
            raise statuses.forbidden(PODS, metadata["name"], why)
        if account.object.get("automountServiceAccountToken") is False and "automountServiceAccountToken" not in spec:
            return body
        return body | {"spec": defaults.with_account_token(spec, self.suffix())}

    def _with_cluster_ip(self, body: Json) -> Json:
        spec = body["spec"]
        if spec["type"] == "ExternalName" or spec.get("clusterIP"):
            return body
        self._service_number += 1
        address = f"10.96.{self._service_number // 250}.{self._service_number % 250 + 1}"
        return body | {"spec": spec | {"clusterIP": address, "clusterIPs": [address]}}

    # -- update ------------------------------------------------------------------------------------------------------

    async def update(self, caller: Caller, kind: Kind, key: Key, body: Json, subresource: str = "") -> Stored:
        """Replace an object, or its subresource, by a whole body; raises ApiStatus."""
        body = self._decoded(kind, body, caller)
        metadata = body["metadata"]
        bodies.check_place(metadata, key)
        old = self.get(kind, *key)
        demanded = metadata.get("resourceVersion", "")
        if not demanded and (kind.custom or kind.plural in _NEEDS_VERSION):
            cause = Cause(
                "FieldValueInvalid", "metadata.resourceVersion", "Invalid value: 0: must be specified for an update"
            )
            raise statuses.invalid(kind.group, kind.kind, key.name, [cause])
        if demanded and demanded != old.object["metadata"]["resourceVersion"]:
            raise statuses.conflict(kind.resource, key.name)
        owner = ssa.Owner(caller.manager, "Update", kind.api_version, subresource)
        return await self._replaced(caller, kind, key, old, body, owner=owner)

    async def change(
        self,
        caller: Caller,
        kind: Kind,
        key: Key,
        compute: Callable[[Json], Json],
        subresource: str = "",
    ) -> Stored:
        """Replace an object by a body computed from it; compute again after a conflict; raise ApiStatus.

        A ``metadata.resourceVersion`` in the computed body is a precondition, as in a patch.
        """
        owner = ssa.Owner(caller.manager, "Update", kind.api_version, subresource)
        for attempt in range(_ATTEMPTS):
            old = self.get(kind, *key)
            body = compute(self.versioned(kind, old.object))
            if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
                raise statuses.bad_request("the patched object is not an object with metadata")
            bodies.check_place(body["metadata"], key)
            if body["metadata"].get("resourceVersion") not in (None, "", old.object["metadata"]["resourceVersion"]):
                raise statuses.conflict(kind.resource, key.name)
            try:
                return await self._replaced(caller, kind, key, old, self._decoded(kind, body, caller), owner=owner)
            except ApiStatus as status:
                if status.reason != "Conflict" or self.store.get(kind.resource, key) is old or attempt + 1 == _ATTEMPTS:
                    raise
        raise statuses.conflict(kind.resource, key.name)

    async def _replaced(
        self,
        caller: Caller,
        kind: Kind,
        key: Key,
        old: Stored,
        body: Json,
        *,
        owner: ssa.Owner,
        owners: ssa.Owners | None = None,
    ) -> Stored:
        before = old.object
        prepared = bodies.prepared_to_update(kind, before, body, owner.subresource)
        if not owner.subresource or kind.custom:
            prepared = self._filled(kind, prepared)
        space = self._namespace_body(kind, key)
        shown = self.versioned(kind, before)
        review = Review("UPDATE", kind, key, owner.subresource, new=prepared, old=shown, caller=caller, namespace=space)
        prepared = await self._mutated(review)
        self._validated(kind, prepared, before, owner.subresource)
        if (
            kind.resource == PODS
            and owner.subresource in ("", "ephemeralcontainers")
            and prepared["spec"] != before["spec"]
        ):
            self._admitted(kind, prepared, space)
        self.grants(caller.user, kind, key, prepared)
        await self._asked(attrs.evolve(review, new=prepared))
        if self.store.get(kind.resource, key) is not old:
            raise statuses.conflict(kind.resource, key.name)
        if owners is None:
            prepared = self._with_owners(kind, prepared, before, owner)
        else:
            prepared = bodies.owned(prepared, owners)
        prepared = self._stored_version(kind, prepared)
        if prepared == before or bodies.same_but_times(prepared, before):
            return old
        if bodies.content(prepared, kind) != bodies.content(before, kind) and kind.has_generation:
            generation = before["metadata"].get("generation", 0) + 1
            prepared = prepared | {"metadata": prepared["metadata"] | {"generation": generation}}
        if caller.dry_run:
            return Stored(prepared, old.version)
        if bodies.finally_gone(prepared):
            # One event, with what was stored (apiserver registry/generic/registry/store.go, deleteWithoutFinalizers).
            self.store.remove(kind.resource, key)
            return Stored(prepared, old.version)
        return self.store.put(kind.resource, key, prepared)

    # -- apply -------------------------------------------------------------------------------------------------------

    async def apply(
        self, caller: Caller, kind: Kind, key: Key, config: Json, *, subresource: str = "", force: bool = False
    ) -> tuple[Stored, bool]:
        """Apply a configuration (server-side apply); return the object and whether it was created."""
        config = self._decoded(kind, config, caller)
        if config["metadata"].get("managedFields"):
            raise statuses.bad_request("metadata.managedFields must be nil")
        bodies.check_place(config["metadata"], key)
        shape = self.catalog.shape(kind)
        owner = ssa.Owner(caller.manager, "Apply", kind.api_version, subresource)
        old = self.store.get(kind.resource, key)
        if old is None and subresource:
            raise statuses.not_found(kind.resource, key.name)
        if undeclared := schema.unknown_fields(config, kind.schema) if kind.schema is not None else ():
            what = "\n".join(f".{path}: field not declared in schema" for path in undeclared)
            raise ApiStatus(500, "", f"failed to create typed patch object: {what}")
        config = self._limited(kind, config, subresource)
        if old is None:
            if config["metadata"].get("uid"):
                raise statuses.conflict(kind.resource, key.name, bodies.no_uid(config["metadata"]["uid"]))
            return await self._created_by_apply(caller, kind, key, config, owner), True
        if config["metadata"].get("resourceVersion") not in (None, "", old.object["metadata"]["resourceVersion"]):
            raise statuses.conflict(kind.resource, key.name)
        try:
            merged, owners = ssa.apply(
                self.versioned(kind, old.object), config, owner, shape, force=force, now=self.now()
            )
        except ssa.ApplyConflict as clash:
            raise bodies.apply_conflict(clash) from None
        except ssa.KeyMissing as error:
            raise ApiStatus(500, "", f"failed to create typed patch object: {error}") from None
        merged = merged | {"metadata": merged["metadata"] | {"resourceVersion": ""}}
        return await self._replaced(caller, kind, key, old, merged, owner=owner, owners=owners), False

    async def _created_by_apply(self, caller: Caller, kind: Kind, key: Key, config: Json, owner: ssa.Owner) -> Stored:
        body = config | {"metadata": config["metadata"] | {"name": key.name}}
        fields = ssa.fields_of(config, self.catalog.shape(kind))
        return await self.create(caller, kind, key.namespace, body, owners={owner: (fields, self.now())})

    def _limited(self, kind: Kind, config: Json, subresource: str) -> Json:
        if subresource == "status":
            kept = ("apiVersion", "kind", "metadata", "status")
            limited = {name: value for name, value in config.items() if name in kept}
            if kind.resource not in bodies.STATUS_KEEPS_LABELS:
                limited["metadata"] = {
                    name: value
                    for name, value in config["metadata"].items()
                    if name in ("name", "namespace", "resourceVersion")
                }
            return limited
        if kind.has_status:
            return {name: value for name, value in config.items() if name != "status"}
        return config

    # -- delete ------------------------------------------------------------------------------------------------------

    async def delete(self, caller: Caller, kind: Kind, key: Key, options: DeleteOptions) -> tuple[Stored, bool]:
        """Delete an object; return its last state, and whether it was removed already (else: finalizers or grace)."""
        caller = attrs.evolve(caller, dry_run=options.dry_run)
        old = self.get(kind, *key)
        self._preconditions(kind, key, old.object, options)
        space = self._namespace_body(kind, key)
        shown = self.versioned(kind, old.object)
        review = Review("DELETE", kind, key, "", new=None, old=shown, caller=caller, namespace=space)
        await self._asked(review)
        current = self.get(kind, *key)
        if caller.dry_run:
            return current, True
        if kind.resource == NAMESPACES:
            return self._delete_namespace(key, current)
        return self._marked(kind, key, current, options)

    def _preconditions(self, kind: Kind, key: Key, body: Json, options: DeleteOptions) -> None:
        metadata = body["metadata"]
        for label, end, wanted, found in (
            ("UID", "deleted and then recreated", options.uid, metadata["uid"]),
            ("ResourceVersion", "modified", options.resource_version, metadata["resourceVersion"]),
        ):
            if wanted and wanted != found:
                why = (
                    f"the {label} in the precondition ({wanted}) does not match the {label} in record ({found}). "
                    f"The object might have been {end}"
                )
                raise statuses.conflict_on(kind.kind, kind.resource, key.name, why)

    def _delete_namespace(self, key: Key, old: Stored) -> tuple[Stored, bool]:
        if old.object["metadata"].get("deletionTimestamp"):
            return old, False
        marked = old.object | {
            "metadata": old.object["metadata"] | {"deletionTimestamp": self.now()},
            "status": {**(old.object.get("status") or {}), "phase": "Terminating"},
        }
        return self.store.put(NAMESPACES, key, marked), False

    def _marked(self, kind: Kind, key: Key, old: Stored, options: DeleteOptions) -> tuple[Stored, bool]:
        body = old.object
        metadata = dict(body["metadata"])
        earlier, left = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds", 0)
        asked = None if options.grace is None else 1 if options.grace < 0 else options.grace
        now = int(self.wall())
        start = now
        if earlier is None:
            grace = self._grace(kind, body, asked)
        elif not left:
            grace = 0
        elif asked is None or asked >= left:
            # A deletion that is under way can only be shortened (apiserver registry/rest/delete.go, BeforeDelete).
            return old, False
        else:
            start = bodies.seconds_of(earlier) - left
            grace = min(asked, 1) if start + asked < now else asked
        finalizers = list(metadata.get("finalizers") or ())
        for policy, finalizer in (("Orphan", "orphan"), ("Foreground", "foregroundDeletion")):
            if options.propagation == policy and finalizer not in finalizers:
                finalizers.append(finalizer)
            elif options.propagation and options.propagation != policy and finalizer in finalizers:
                finalizers.remove(finalizer)
        if not finalizers and not grace:
            gone = self.store.remove(kind.resource, key)
            return gone or old, True
        if finalizers != list(metadata.get("finalizers") or ()):
            metadata["finalizers"] = finalizers
        if earlier is None or grace < left:
            metadata["deletionTimestamp"] = bodies.timestamp(max(start + grace, now))
            metadata["deletionGracePeriodSeconds"] = grace
        if earlier is None and metadata.get("generation"):
            metadata["generation"] += 1
        if metadata == body["metadata"]:
            return old, False
        return self.store.put(kind.resource, key, body | {"metadata": metadata}), False

    def _grace(self, kind: Kind, body: Json, asked: int | None) -> int:
        if kind.resource != PODS:
            return 0
        spec, status = body.get("spec") or {}, body.get("status") or {}
        if not spec.get("nodeName") or status.get("phase") in _TERMINAL:
            return 0
        own = int(spec.get("terminationGracePeriodSeconds", 30))
        return (1 if own < 0 else own) if asked is None else asked

    # -- shared steps ------------------------------------------------------------------------------------------------

    def versioned(self, kind: Kind, body: Json) -> Json:
        """Return a stored object in the version of a kind."""
        return body if body.get("apiVersion") == kind.api_version else body | {"apiVersion": kind.api_version}

    def _stored_version(self, kind: Kind, body: Json) -> Json:
        if not kind.stored_version or kind.stored_version == kind.version:
            return body
        return body | {"apiVersion": f"{kind.group}/{kind.stored_version}"}

    def _decoded(self, kind: Kind, body: Json, caller: Caller) -> Json:
        if kind.custom and kind.schema is not None:
            if caller.strict and (unknown := schema.unknown_fields(body, kind.schema)):
                words = ", ".join(f'unknown field "{path}"' for path in unknown)
                raise statuses.bad_request(
                    f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                    f"strict decoding error: {words}"
                )
            metadata = body.get("metadata")
            return body | {"metadata": bodies.tidy(metadata if isinstance(metadata, dict) else {})}
        tidy: Json = bodies.without_nulls(body)
        return tidy | {"metadata": bodies.tidy(tidy.get("metadata") or {})}

    def _filled(self, kind: Kind, body: Json) -> Json:
        body = body | {"apiVersion": kind.api_version, "kind": kind.kind}
        if not kind.custom:
            return defaults.fill(kind.kind, body)
        if kind.schema is None:
            return body
        filled: Json = schema.with_defaults(schema.prune(body, kind.schema), kind.schema)
        return filled

    def _validated(self, kind: Kind, body: Json, old: Json | None, subresource: str = "") -> None:
        if kind.custom:
            causes = list(validation.metadata(kind, body)) if old is None else []
            if kind.schema is not None:
                causes += schema.validate(body, kind.schema)
        else:
            causes = validation.check(kind, body)
            if old is not None:
                causes += validation.check_change(kind, old, body, subresource)
        if causes:
            raise statuses.invalid(kind.group, kind.kind, body["metadata"].get("name", ""), causes)

    def _admitted(self, kind: Kind, body: Json, space: Json | None) -> None:
        if kind.resource != PODS or space is None:
            return
        level = (space["metadata"].get("labels") or {}).get("pod-security.kubernetes.io/enforce", "privileged")
        found = violations(body["spec"], body["metadata"].get("annotations") or {}, level)
        if found:
            why = f'violates PodSecurity "{level}:latest": {", ".join(found)}'
            raise statuses.forbidden(PODS, body["metadata"]["name"], why)

    async def _mutated(self, review: Review) -> Json:
        body = review.new or {}
        hooks = self.webhooks.matching(review, mutating=True) if self.webhooks is not None else []
        if not hooks or self.webhooks is None:
            return body
        return self._filled(review.kind, await self.webhooks.mutate(review, hooks))

    async def _asked(self, review: Review) -> None:
        hooks = self.webhooks.matching(review, mutating=False) if self.webhooks is not None else []
        if hooks and self.webhooks is not None:
            await self.webhooks.validate(review, hooks)

    def _namespace_body(self, kind: Kind, key: Key) -> Json | None:
        name = key.namespace if kind.namespaced else key.name if kind.resource == NAMESPACES else ""
        found = self.store.get(NAMESPACES, Key("", name)) if name else None
        return found.object if found is not None else None

    def _namespace_of(self, kind: Kind, namespace: str, name: str) -> Json | None:
        if not kind.namespaced:
            return None
        found = self.store.get(NAMESPACES, Key("", namespace))
        if found is None:
            raise statuses.not_found(NAMESPACES, namespace)
        if found.object["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            status = statuses.forbidden(kind.resource, name, why)
            message = f"namespace {namespace} is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            status.details = {**(status.details or {}), "causes": [cause]}
            raise status
        return found.object

    def _with_owners(self, kind: Kind, body: Json, old: Json | None, owner: ssa.Owner) -> Json:
        base: Json = old if old is not None else {}
        try:
            shape = self.catalog.shape(kind)
            owners = ssa.after_update(ssa.read_owners(base), owner, base, body, shape=shape, now=self.now())
        except ssa.KeyMissing:
            return body
        return bodies.owned(body, owners)

    def _stored(self, kind: Kind, key: Key, body: Json, caller: Caller) -> Stored:
        body = self._stored_version(kind, body)
        if caller.dry_run:
            return Stored(body, self.store.version)
        return self.store.put(kind.resource, key, body)
