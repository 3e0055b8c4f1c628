"""Objects: how they are stored, changed, listed, deleted."""

from __future__ import annotations

from typing import Any

from tests.contract.base import JSON_PATCH, MERGE, STRATEGIC, Body, ContractCase, pod_spec

LEASES = "/apis/coordination.k8s.io/v1/namespaces"


class ObjectCase(ContractCase):
    """Create, read, replace, delete."""

    async def test_created_object_is_stamped(self) -> None:
        """A new object gets a UID, a version and a creation time, and keeps what it came with."""
        made = await self.config_map("a", {"k": "v"}, labels={"x": "y"})
        metadata = made["metadata"]
        self.assertTrue(metadata["uid"] and metadata["resourceVersion"].isdigit())
        self.assertRegex(metadata["creationTimestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertEqual((made["data"], metadata["labels"], made["kind"]), ({"k": "v"}, {"x": "y"}, "ConfigMap"))
        self.assertEqual(made, await self.call("GET", f"{self.space}/configmaps/a"))

    async def test_second_creation_is_refused(self) -> None:
        """The same name again is 409 AlreadyExists."""
        await self.config_map("a")
        error = await self.refused(
            409, "AlreadyExists", "POST", f"{self.space}/configmaps", {"metadata": {"name": "a"}}
        )
        self.assertEqual(error.message, 'configmaps "a" already exists')
        self.assertEqual(error.details, {"name": "a", "kind": "configmaps"})

    async def test_missing_object(self) -> None:
        """What is not there is 404 NotFound, with its name and kind."""
        error = await self.refused(404, "NotFound", "GET", f"{self.space}/configmaps/none")
        self.assertEqual(error.message, 'configmaps "none" not found')
        self.assertEqual(error.details, {"name": "none", "kind": "configmaps"})

    async def test_missing_object_of_a_named_group(self) -> None:
        """Outside of the core group, the group is part of the name in the message."""
        error = await self.refused(404, "NotFound", "GET", f"{LEASES}/{self.namespace}/leases/none")
        self.assertEqual(error.message, 'leases.coordination.k8s.io "none" not found')
        self.assertEqual(error.details, {"name": "none", "group": "coordination.k8s.io", "kind": "leases"})

    async def test_unknown_kind(self) -> None:
        """A kind that is not served is 404."""
        error = await self.refused(404, "NotFound", "GET", f"{self.space}/unicorns")
        self.assertEqual(error.message, "the server could not find the requested resource")

    async def test_missing_namespace(self) -> None:
        """Nothing is created in a namespace that is not there."""
        body = {"metadata": {"name": "a"}}
        error = await self.refused(404, "NotFound", "POST", "/api/v1/namespaces/not-there/configmaps", body)
        self.assertEqual(error.message, 'namespaces "not-there" not found')

    async def test_generate_name(self) -> None:
        """generateName gives a name with five random characters."""
        made = await self.call("POST", f"{self.space}/configmaps", {"metadata": {"generateName": "pre-"}})
        self.assertRegex(made["metadata"]["name"], r"^pre-[a-z0-9]{5}$")
        self.assertEqual(made["metadata"]["generateName"], "pre-")

    async def test_name_is_required(self) -> None:
        """Without name and generateName an object is invalid."""
        error = await self.refused(422, "Invalid", "POST", f"{self.space}/configmaps", {"metadata": {}})
        self.assertEqual(
            error.message, 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
        )
        self.assertEqual(error.details["causes"][0]["reason"], "FieldValueRequired")

    async def test_bad_name(self) -> None:
        """A name that is not a DNS subdomain is 422 Invalid, with the field."""
        error = await self.refused(
            422, "Invalid", "POST", f"{self.space}/configmaps", {"metadata": {"name": "Bad_Name"}}
        )
        self.assertEqual(error.details["causes"][0]["field"], "metadata.name")
        self.assertEqual(error.details["causes"][0]["reason"], "FieldValueInvalid")
        self.assertIn("a lowercase RFC 1123 subdomain must consist of", error.message)

    async def test_bad_label(self) -> None:
        """A label value with a space is invalid."""
        body = {"metadata": {"name": "a", "labels": {"k": "not good"}}}
        error = await self.refused(422, "Invalid", "POST", f"{self.space}/configmaps", body)
        self.assertEqual(error.details["causes"][0]["field"], "metadata.labels")

    async def test_source_ranges_are_of_load_balancers(self) -> None:
        """A service of another type with source ranges, in the field or the annotation, is invalid; also one whose type
        is changed to it.
        """
        path, ranges = f"{self.space}/services", "service.beta.kubernetes.io/load-balancer-source-ranges"
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerSourceRanges": ["192.0.2.0/24"]}
        await self.call("POST", path, {"metadata": {"name": "s"}, "spec": spec})
        change = {"spec": {"type": "ClusterIP"}}
        error = await self.refused(422, "Invalid", "PATCH", f"{path}/s", change, kind=MERGE)
        self.assertEqual(
            error.message,
            'Service "s" is invalid: spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is '
            "'LoadBalancer'",
        )
        without: Body = {"spec": {**change["spec"], "loadBalancerSourceRanges": None}}
        self.assertEqual((await self.call("PATCH", f"{path}/s", without, kind=MERGE))["spec"]["type"], "ClusterIP")
        body = {"metadata": {"name": "t", "annotations": {ranges: "192.0.2.0/24"}}, "spec": {"ports": [{"port": 80}]}}
        error = await self.refused(422, "Invalid", "POST", path, body)
        self.assertEqual(error.details["causes"][0]["field"], f"metadata.annotations[{ranges}]")

    async def test_namespace_in_body_must_match(self) -> None:
        """A body of another namespace is 400."""
        body = {"metadata": {"name": "a", "namespace": "default"}}
        error = await self.refused(400, "BadRequest", "POST", f"{self.space}/configmaps", body)
        self.assertEqual(
            error.message, "the namespace of the provided object does not match the namespace sent on the request"
        )

    async def test_replace_with_old_version_conflicts(self) -> None:
        """Who replaces an object by an older version gets 409 Conflict."""
        made = await self.config_map("a", {"k": "1"})
        await self.call("PUT", f"{self.space}/configmaps/a", made | {"data": {"k": "2"}})
        error = await self.refused(409, "Conflict", "PUT", f"{self.space}/configmaps/a", made | {"data": {"k": "3"}})
        self.assertEqual(
            error.message,
            'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes '
            "to the latest version and try again",
        )
        self.assertEqual(error.details, {"name": "a", "kind": "configmaps"})

    async def test_replace_without_version(self) -> None:
        """A body without a version replaces whatever is there, for kinds that allow it."""
        made = await self.config_map("a", {"k": "1"})
        answer = await self.call("PUT", f"{self.space}/configmaps/a", {"metadata": {"name": "a"}, "data": {"k": "2"}})
        self.assertEqual((answer["data"], answer["metadata"]["uid"]), ({"k": "2"}, made["metadata"]["uid"]))
        self.assertGreater(int(answer["metadata"]["resourceVersion"]), int(made["metadata"]["resourceVersion"]))

    async def test_equal_replacement_changes_nothing(self) -> None:
        """An object replaced by itself keeps its version."""
        made = await self.config_map("a", {"k": "1"})
        answer = await self.call("PUT", f"{self.space}/configmaps/a", made)
        self.assertEqual(answer["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"])

    async def test_replace_missing(self) -> None:
        """What is not there is not created by PUT."""
        await self.refused(404, "NotFound", "PUT", f"{self.space}/secrets/a", {"metadata": {"name": "a"}})

    async def test_uid_in_body_must_match(self) -> None:
        """A replacement that names another UID conflicts."""
        made = await self.config_map("a")
        body = {"metadata": {"name": "a", "uid": "11111111-1111-1111-1111-111111111111"}}
        error = await self.refused(409, "Conflict", "PUT", f"{self.space}/configmaps/a", body)
        self.assertIn(f"UID in object meta: {made['metadata']['uid']}", error.message)

    async def test_name_on_url_must_match(self) -> None:
        """A replacement under another name is 400."""
        await self.config_map("a")
        error = await self.refused(400, "BadRequest", "PUT", f"{self.space}/configmaps/a", {"metadata": {"name": "b"}})
        self.assertEqual(error.message, "the name of the object (b) does not match the name on the URL (a)")

    async def test_delete_answers_status_with_uid(self) -> None:
        """A deletion at once answers Success and the UID of what is gone."""
        made = await self.config_map("a")
        answer = await self.call("DELETE", f"{self.space}/configmaps/a")
        self.assertEqual((answer["kind"], answer["status"]), ("Status", "Success"))
        self.assertEqual(answer["details"], {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]})
        await self.refused(404, "NotFound", "DELETE", f"{self.space}/configmaps/a")

    async def test_delete_with_wrong_uid(self) -> None:
        """A precondition on another UID keeps the object."""
        made = await self.config_map("a")
        uid = "22222222-2222-2222-2222-222222222222"
        error = await self.refused(
            409, "Conflict", "DELETE", f"{self.space}/configmaps/a", {"preconditions": {"uid": uid}}
        )
        found = made["metadata"]["uid"]
        self.assertIn(f"the UID in the precondition ({uid}) does not match the UID in record ({found})", error.message)
        self.assertFalse(await self.gone(f"{self.space}/configmaps/a"))

    async def test_delete_with_wrong_version(self) -> None:
        """A precondition on another version keeps the object."""
        await self.config_map("a")
        body = {"preconditions": {"resourceVersion": "1"}}
        await self.refused(409, "Conflict", "DELETE", f"{self.space}/configmaps/a", body)

    async def test_finalizer_holds_an_object(self) -> None:
        """An object with finalizers gets a deletion time and goes when the last finalizer does."""
        await self.config_map("a", finalizers=["example.com/hold"])
        answer = await self.call("DELETE", f"{self.space}/configmaps/a")
        self.assertEqual((answer["kind"], answer["metadata"]["deletionGracePeriodSeconds"]), ("ConfigMap", 0))
        self.assertIn("deletionTimestamp", answer["metadata"])
        await self.call("PATCH", f"{self.space}/configmaps/a", {"metadata": {"finalizers": None}}, kind=MERGE)
        self.assertTrue(await self.gone(f"{self.space}/configmaps/a"))

    async def test_no_new_finalizer_while_deleting(self) -> None:
        """An object that is being deleted takes no further finalizers."""
        await self.config_map("a", finalizers=["example.com/hold"])
        await self.call("DELETE", f"{self.space}/configmaps/a")
        body = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
        error = await self.refused(422, "Invalid", "PATCH", f"{self.space}/configmaps/a", body, kind=MERGE)
        self.assertEqual(error.details["causes"][0]["reason"], "FieldValueForbidden")
        self.assertEqual(error.details["causes"][0]["field"], "metadata.finalizers")
        await self.call("PATCH", f"{self.space}/configmaps/a", {"metadata": {"finalizers": None}}, kind=MERGE)

    async def test_delete_collection_by_label(self) -> None:
        """A deletion of a collection takes what the selector chooses, and leaves the rest."""
        for name, label in (("a", "go"), ("b", "go"), ("c", "stay")):
            await self.config_map(name, labels={"do": label})
        await self.call("DELETE", f"{self.space}/configmaps", labelSelector="do=go")
        left = await self.call("GET", f"{self.space}/configmaps", labelSelector="do")
        self.assertEqual([each["metadata"]["name"] for each in left["items"]], ["c"])

    async def test_dry_run_stores_nothing(self) -> None:
        """With dryRun=All the answer is as if, and nothing is there afterwards."""
        made = await self.call("POST", f"{self.space}/configmaps", {"metadata": {"name": "a"}}, dryRun="All")
        self.assertTrue(made["metadata"]["uid"])
        self.assertTrue(await self.gone(f"{self.space}/configmaps/a"))

    async def test_deletion_that_is_only_tried(self) -> None:
        """A deletion is a dry run by its body, or by its query where it has no body."""
        await self.config_map("a")
        path = f"{self.space}/configmaps/a"
        await self.call("DELETE", path, {"dryRun": ["All"]})
        await self.call("DELETE", path, dryRun="All")
        self.assertFalse(await self.gone(path))
        await self.call("DELETE", path, {"propagationPolicy": "Background"}, dryRun="All", propagationPolicy="Orphan")
        self.assertTrue(await self.gone(path))

    async def test_secret_takes_string_data(self) -> None:
        """stringData ends in data, encoded, and does not come back."""
        body = {"metadata": {"name": "s"}, "stringData": {"k": "v"}}
        made = await self.call("POST", f"{self.space}/secrets", body)
        self.assertEqual((made["data"], made["type"]), ({"k": "dg=="}, "Opaque"))
        self.assertNotIn("stringData", made)

    async def test_generation_counts_changes_of_the_spec(self) -> None:
        """A deployment's generation moves with its spec, not with its labels."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        body = deployment("d", 0)
        made = await self.call("POST", path, body)
        self.assertEqual(made["metadata"]["generation"], 1)
        labelled = await self.call("PATCH", f"{path}/d", {"metadata": {"labels": {"a": "b"}}}, kind=MERGE)
        self.assertEqual(labelled["metadata"]["generation"], 1)
        paused = await self.call("PATCH", f"{path}/d", {"spec": {"minReadySeconds": 3}}, kind=MERGE)
        self.assertEqual(paused["metadata"]["generation"], 2)

    async def test_lease_needs_a_version_to_be_replaced(self) -> None:
        """Kinds without unconditional replacement refuse a body that names no version."""
        path = f"{LEASES}/{self.namespace}/leases"
        await self.call("POST", path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}})
        error = await self.refused(422, "Invalid", "PUT", f"{path}/l", {"metadata": {"name": "l"}})
        self.assertEqual(error.details["causes"][0]["field"], "metadata.resourceVersion")

    async def test_immutable_config_map(self) -> None:
        """What is marked immutable does not change any more."""
        await self.call(
            "POST", f"{self.space}/configmaps", {"metadata": {"name": "a"}, "immutable": True, "data": {"k": "1"}}
        )
        error = await self.refused(
            422, "Invalid", "PATCH", f"{self.space}/configmaps/a", {"data": {"k": "2"}}, kind=MERGE
        )
        self.assertEqual(error.details["causes"][0]["reason"], "FieldValueForbidden")


class PatchCase(ContractCase):
    """The patch formats."""

    async def test_merge_patch(self) -> None:
        """A merge patch sets, replaces and, with null, removes."""
        await self.config_map("a", {"keep": "1", "change": "1", "drop": "1"})
        answer = await self.call(
            "PATCH", f"{self.space}/configmaps/a", {"data": {"change": "2", "drop": None, "new": "3"}}, kind=MERGE
        )
        self.assertEqual(answer["data"], {"keep": "1", "change": "2", "new": "3"})

    async def test_json_patch(self) -> None:
        """A JSON patch is applied operation by operation."""
        await self.config_map("a", {"x": "1"})
        change = [
            {"op": "test", "path": "/data/x", "value": "1"},
            {"op": "add", "path": "/data/y", "value": "2"},
            {"op": "remove", "path": "/data/x"},
            {"op": "add", "path": "/metadata/labels", "value": {"a/b": "c"}},
            {"op": "replace", "path": "/metadata/labels/a~1b", "value": "d"},
        ]
        answer = await self.call("PATCH", f"{self.space}/configmaps/a", change, kind=JSON_PATCH)
        self.assertEqual((answer["data"], answer["metadata"]["labels"]), ({"y": "2"}, {"a/b": "d"}))

    async def test_failed_json_patch_test_changes_nothing(self) -> None:
        """A JSON patch whose test fails is 422 and has no effect."""
        await self.config_map("a", {"x": "1"})
        change = [{"op": "test", "path": "/data/x", "value": "2"}, {"op": "remove", "path": "/data/x"}]
        await self.refused(422, "Invalid", "PATCH", f"{self.space}/configmaps/a", change, kind=JSON_PATCH)
        self.assertEqual((await self.call("GET", f"{self.space}/configmaps/a"))["data"], {"x": "1"})

    async def test_strategic_patch_merges_containers_by_name(self) -> None:
        """A strategic patch finds the container by its name and the variable by its name."""
        await self.pod("p", pod_spec(env=[{"name": "A", "value": "1"}]))
        change = {"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}
        answer = await self.call("PATCH", f"{self.space}/pods/p", change, kind=STRATEGIC)
        container = answer["spec"]["containers"][0]
        self.assertEqual((container["image"], container["env"]), ("busybox:2", [{"name": "A", "value": "1"}]))

    async def test_strategic_patch_in_templates(self) -> None:
        """In a template, elements are added, changed, and deleted by directive."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        body = deployment("d", 0)
        body["spec"]["template"]["spec"] = pod_spec(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "1"}])
        await self.call("POST", path, body)
        env = [{"name": "A", "$patch": "delete"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]
        containers = [{"name": "main", "env": env}, {"name": "side", "image": "busybox:1"}]
        change = {"spec": {"template": {"spec": {"containers": containers}}}}
        answer = await self.call("PATCH", f"{path}/d", change, kind=STRATEGIC)
        found = {each["name"]: each for each in answer["spec"]["template"]["spec"]["containers"]}
        self.assertEqual(
            sorted((each["name"], each["value"]) for each in found["main"]["env"]), [("B", "2"), ("C", "3")]
        )
        self.assertIn("side", found)

    async def test_strategic_patch_of_conditions(self) -> None:
        """Conditions of a node merge by their type."""
        name = await self.node()
        for kind in ("Alpha", "Beta"):
            change = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
            answer = await self.call("PATCH", f"/api/v1/nodes/{name}/status", change, kind=STRATEGIC)
        kinds = {each["type"] for each in answer["status"]["conditions"]}
        self.assertLessEqual({"Alpha", "Beta"}, kinds)

    async def test_patch_with_old_version_conflicts(self) -> None:
        """A patch that names a version is refused when that is not the current one."""
        made = await self.config_map("a", {"x": "1"})
        await self.call("PATCH", f"{self.space}/configmaps/a", {"data": {"x": "2"}}, kind=MERGE)
        change = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "3"}}
        await self.refused(409, "Conflict", "PATCH", f"{self.space}/configmaps/a", change, kind=MERGE)

    async def test_patch_without_effect(self) -> None:
        """A patch that changes nothing keeps the version."""
        made = await self.config_map("a", {"x": "1"})
        answer = await self.call("PATCH", f"{self.space}/configmaps/a", {"data": {"x": "1"}}, kind=MERGE)
        self.assertEqual(answer["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"])

    async def test_unknown_patch_format(self) -> None:
        """A patch in plain JSON is 415."""
        await self.config_map("a")
        await self.refused(415, "UnsupportedMediaType", "PATCH", f"{self.space}/configmaps/a", {"data": {}})

    async def test_patch_of_the_missing(self) -> None:
        """A patch does not create."""
        await self.refused(404, "NotFound", "PATCH", f"{self.space}/configmaps/a", {"data": {}}, kind=MERGE)

    async def test_patch_may_not_rename(self) -> None:
        """A patch of the name is refused."""
        await self.config_map("a")
        await self.refused(
            400, "BadRequest", "PATCH", f"{self.space}/configmaps/a", {"metadata": {"name": "b"}}, kind=MERGE
        )


class ListCase(ContractCase):
    """Lists, selectors, pages."""

    async def names(self, path: str, **query: Any) -> list[str]:
        listed = await self.call("GET", path, **query)
        return [each["metadata"]["name"] for each in listed["items"]]

    async def test_list_is_sorted_and_versioned(self) -> None:
        """A list has its kind, a version, and its items by name."""
        for name in ("b", "c", "a"):
            await self.config_map(name, labels={"in": "list"})
        listed = await self.call("GET", f"{self.space}/configmaps", labelSelector="in=list")
        self.assertEqual((listed["kind"], listed["apiVersion"]), ("ConfigMapList", "v1"))
        self.assertTrue(listed["metadata"]["resourceVersion"].isdigit())
        self.assertEqual([each["metadata"]["name"] for each in listed["items"]], ["a", "b", "c"])

    async def test_label_selectors(self) -> None:
        """All operators of label selectors choose what they say."""
        for name, labels in (("a", {"t": "1", "k": "x"}), ("b", {"t": "2", "k": "x"}), ("c", {"k": "y"})):
            await self.config_map(name, labels=labels)
        for selector, wanted in (
            ("t=1", ["a"]),
            ("t==2", ["b"]),
            ("k,t!=1", ["b", "c"]),
            ("t in (1,2)", ["a", "b"]),
            ("k,t notin (1)", ["b", "c"]),
            ("k,!t", ["c"]),
            ("k=x,t", ["a", "b"]),
        ):
            self.assertEqual(await self.names(f"{self.space}/configmaps", labelSelector=selector), wanted, selector)

    async def test_bad_label_selector(self) -> None:
        """A text that is no selector is 400."""
        await self.refused(400, "BadRequest", "GET", f"{self.space}/configmaps", labelSelector="a in (")

    async def test_field_selectors(self) -> None:
        """Every kind can be selected by name and namespace."""
        for name in ("a", "b"):
            await self.config_map(name)
        self.assertEqual(await self.names(f"{self.space}/configmaps", fieldSelector="metadata.name=b"), ["b"])
        chosen = await self.names(
            "/api/v1/configmaps", fieldSelector=f"metadata.namespace={self.namespace},metadata.name!=a"
        )
        self.assertIn("b", chosen)
        self.assertNotIn("a", chosen)

    async def test_unknown_field_selector(self) -> None:
        """A field that the kind has no index of is 400."""
        error = await self.refused(400, "BadRequest", "GET", f"{self.space}/configmaps", fieldSelector="data.x=1")
        self.assertIn('"data.x" is not a known field selector', error.message)

    async def test_pods_by_node_and_phase(self) -> None:
        """Pods can be selected by node and phase."""
        await self.pod("here", {"nodeName": "nowhere"})
        await self.pod("there", {"schedulerName": "nobody"})
        self.assertEqual(await self.names(f"{self.space}/pods", fieldSelector="spec.nodeName=nowhere"), ["here"])
        self.assertEqual(await self.names(f"{self.space}/pods", fieldSelector="spec.nodeName="), ["there"])
        self.assertEqual(
            await self.names(f"{self.space}/pods", fieldSelector="status.phase=Pending"), ["here", "there"]
        )

    async def test_events_by_involved_object(self) -> None:
        """Events can be selected by what they are about."""
        for name in ("a", "b"):
            about = {"kind": "Pod", "name": f"pod-{name}", "namespace": self.namespace, "uid": f"uid-{name}"}
            body = {
                "metadata": {"name": name},
                "involvedObject": about,
                "reason": "Why",
                "message": "m",
                "type": "Normal",
            }
            await self.call("POST", f"{self.space}/events", body)
        self.assertEqual(await self.names(f"{self.space}/events", fieldSelector="involvedObject.name=pod-a"), ["a"])
        self.assertEqual(
            await self.names(f"{self.space}/events", fieldSelector="involvedObject.uid=uid-b,reason=Why"), ["b"]
        )

    async def test_pages(self) -> None:
        """A list in pages has all items, at the version of the first page, and says how many remain."""
        await self.eventually(lambda: self.found(f"{self.space}/configmaps/kube-root-ca.crt"))
        for number in range(5):
            await self.config_map(f"n{number}")
        first = await self.call("GET", f"{self.space}/configmaps", limit=2)
        self.assertEqual(len(first["items"]), 2)
        self.assertEqual(first["metadata"]["remainingItemCount"], 4)
        await self.config_map("late")
        names = [each["metadata"]["name"] for each in first["items"]]
        page = first
        while token := page["metadata"].get("continue"):
            page = await self.call("GET", f"{self.space}/configmaps", limit=2, **{"continue": token})
            self.assertEqual(page["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"])
            names += [each["metadata"]["name"] for each in page["items"]]
        self.assertEqual(names, ["kube-root-ca.crt", "n0", "n1", "n2", "n3", "n4"])

    async def test_list_across_namespaces(self) -> None:
        """A list without a namespace has the objects of all."""
        await self.config_map("a", labels={"across": self.namespace})
        self.assertEqual(await self.names("/api/v1/configmaps", labelSelector=f"across={self.namespace}"), ["a"])

    async def test_list_of_the_future(self) -> None:
        """A version that is not there yet is a time-out, not an empty list."""
        await self.refused(
            504,
            "Timeout",
            "GET",
            f"{self.space}/configmaps",
            resourceVersion="999999999",
            resourceVersionMatch="NotOlderThan",
        )

    async def test_metadata_only(self) -> None:
        """Objects can be had without anything but their metadata."""
        await self.config_map("a", {"k": "v"})
        accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        found = await self.call("GET", f"{self.space}/configmaps/a", accept=accept)
        self.assertEqual((found["kind"], found["metadata"]["name"]), ("PartialObjectMetadata", "a"))
        self.assertNotIn("data", found)


def deployment(name: str, replicas: int, **spec: Body) -> Body:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec()}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}
