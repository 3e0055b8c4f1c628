"""Server-side apply and the ownership of fields."""

from __future__ import annotations

from typing import Any

from tests.contract.base import APPLY, MERGE, THING, Body, ContractCase, pod_spec
from tests.contract.cases_objects import deployment


class ApplyCase(ContractCase):
    """Who owns what, and what an apply leaves."""

    async def apply(self, name: str, data: dict[str, str] | None, manager: str, **query: Any) -> Body:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        path = f"{self.space}/configmaps/{name}"
        return await self.call("PATCH", path, body, kind=APPLY, fieldManager=manager, **query)

    async def test_apply_creates(self) -> None:
        """An apply of what is not there creates it, owned by the applier."""
        made = await self.apply("a", {"k": "1"}, "one")
        entry = made["metadata"]["managedFields"][0]
        self.assertEqual((entry["manager"], entry["operation"], entry["apiVersion"]), ("one", "Apply", "v1"))
        self.assertEqual((entry["fieldsType"], entry["fieldsV1"]), ("FieldsV1", {"f:data": {"f:k": {}}}))

    async def test_apply_needs_a_manager(self) -> None:
        """An apply without fieldManager is refused."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        error = await self.refused(422, "Invalid", "PATCH", f"{self.space}/configmaps/a", body, kind=APPLY)
        self.assertIn("is required for apply patch", error.message)

    async def test_repeated_apply_changes_nothing(self) -> None:
        """The same configuration again keeps the version."""
        first = await self.apply("a", {"k": "1"}, "one")
        second = await self.apply("a", {"k": "1"}, "one")
        self.assertEqual(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"])

    async def test_fields_no_longer_applied_go(self) -> None:
        """What the applier alone owned and does not apply any more is removed."""
        await self.apply("a", {"keep": "1", "drop": "1"}, "one")
        self.assertEqual((await self.apply("a", {"keep": "1"}, "one"))["data"], {"keep": "1"})

    async def test_others_fields_stay(self) -> None:
        """Fields of another applier stay."""
        await self.apply("a", {"mine": "1"}, "one")
        await self.apply("a", {"yours": "1"}, "two")
        self.assertEqual((await self.apply("a", {"mine": "2"}, "one"))["data"], {"mine": "2", "yours": "1"})

    async def test_conflict(self) -> None:
        """A field that another owns with another value is a conflict that names owner and field."""
        await self.apply("a", {"k": "1"}, "one")
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "2"}}
        error = await self.refused(
            409, "Conflict", "PATCH", f"{self.space}/configmaps/a", body, kind=APPLY, fieldManager="two"
        )
        self.assertEqual(error.message, 'Apply failed with 1 conflict: conflict with "one": .data.k')
        self.assertEqual(
            error.details["causes"],
            [{"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.k"}],
        )

    async def test_forced_apply_takes_the_field(self) -> None:
        """With force the field changes hands, and the former owner's next apply conflicts."""
        await self.apply("a", {"k": "1"}, "one")
        taken = await self.apply("a", {"k": "2"}, "two", force="true")
        self.assertEqual(taken["data"], {"k": "2"})
        self.assertEqual([each["manager"] for each in taken["metadata"]["managedFields"]], ["two"])
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}
        await self.refused(409, "Conflict", "PATCH", f"{self.space}/configmaps/a", body, kind=APPLY, fieldManager="one")

    async def test_equal_values_are_shared(self) -> None:
        """Two appliers of the same value own it together: it stays when one lets go."""
        await self.apply("a", {"k": "1", "x": "1"}, "one")
        await self.apply("a", {"k": "1"}, "two")
        self.assertEqual((await self.apply("a", {"x": "1"}, "one"))["data"], {"k": "1", "x": "1"})

    async def test_updater_takes_fields(self) -> None:
        """Who changes a field by patch owns it then, as an updater."""
        await self.apply("a", {"k": "1"}, "one")
        await self.call("PATCH", f"{self.space}/configmaps/a", {"data": {"k": "2"}}, kind=MERGE, fieldManager="hand")
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}
        error = await self.refused(
            409, "Conflict", "PATCH", f"{self.space}/configmaps/a", body, kind=APPLY, fieldManager="one"
        )
        self.assertEqual(error.message, 'Apply failed with 1 conflict: conflict with "hand" using v1: .data.k')

    async def test_created_fields_belong_to_the_creator(self) -> None:
        """A POSTed object's fields are owned by whom posted it."""
        made = await self.call(
            "POST", f"{self.space}/configmaps", {"metadata": {"name": "a"}, "data": {"k": "1"}}, fieldManager="hand"
        )
        entry = made["metadata"]["managedFields"][0]
        self.assertEqual((entry["manager"], entry["operation"]), ("hand", "Update"))
        self.assertIn("f:k", entry["fieldsV1"]["f:data"])

    async def test_containers_are_a_map(self) -> None:
        """Two appliers each bring a container of one template."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/d"
        body = deployment("d", 0)
        body["spec"].pop("replicas")
        body["spec"]["template"]["spec"] = pod_spec(ports=[{"containerPort": 80}])
        await self.call("PATCH", path, body, kind=APPLY, fieldManager="one", force="true")
        side: Body = {"containers": [{"name": "side", "image": "busybox:2"}]}
        other = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {"template": {"spec": side}},
        }
        await self.call("PATCH", path, other, kind=APPLY, fieldManager="two", force="true")
        body["spec"]["template"]["spec"] = pod_spec()
        answer = await self.call("PATCH", path, body, kind=APPLY, fieldManager="one")
        found = {each["name"]: each for each in answer["spec"]["template"]["spec"]["containers"]}
        self.assertEqual(sorted(found), ["main", "side"])
        self.assertNotIn("ports", found["main"])

    async def test_service_ports_are_a_map(self) -> None:
        """Ports are distinguished by number and protocol."""
        path = f"{self.space}/services/s"

        def body(*ports: Body) -> Body:
            return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": list(ports)}}

        await self.call(
            "PATCH", path, body({"port": 80, "name": "a"}, {"port": 81, "name": "b"}), kind=APPLY, fieldManager="one"
        )
        answer = await self.call("PATCH", path, body({"port": 80, "name": "c"}), kind=APPLY, fieldManager="one")
        self.assertEqual([(each["port"], each["name"]) for each in answer["spec"]["ports"]], [(80, "c")])

    async def test_finalizers_are_a_set(self) -> None:
        """Each applier adds and removes its own finalizer only."""

        def body(*finalizers: str) -> Body:
            metadata = {"name": "a", "finalizers": list(finalizers)}
            return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

        path = f"{self.space}/configmaps/a"
        await self.call("PATCH", path, body("x.io/one"), kind=APPLY, fieldManager="one")
        both = await self.call("PATCH", path, body("x.io/two"), kind=APPLY, fieldManager="two")
        self.assertEqual(both["metadata"]["finalizers"], ["x.io/one", "x.io/two"])
        left = await self.call("PATCH", path, body(), kind=APPLY, fieldManager="one")
        self.assertEqual(left["metadata"]["finalizers"], ["x.io/two"])
        await self.call("PATCH", path, {"metadata": {"finalizers": None}}, kind=MERGE)

    async def test_apply_of_a_status(self) -> None:
        """Conditions of a status merge by type across appliers."""
        path, group = await self.definition()
        await self.call("POST", path, self.thing(group, "t", {"size": 1}))
        for manager, kind in (("one", "A"), ("two", "B")):
            body = self.thing(group, "t") | {"status": {"conditions": [{"type": kind, "status": "True"}]}}
            answer = await self.call("PATCH", f"{path}/t/status", body, kind=APPLY, fieldManager=manager)
        self.assertEqual([each["type"] for each in answer["status"]["conditions"]], ["A", "B"])
        empty = self.thing(group, "t") | {"status": {}}
        answer = await self.call("PATCH", f"{path}/t/status", empty, kind=APPLY, fieldManager="one")
        self.assertEqual([each["type"] for each in answer["status"]["conditions"]], ["B"])

    async def test_undeclared_fields(self) -> None:
        """What the schema does not name cannot be applied, neither to the object nor to its status."""
        path, group = await self.definition()
        spec = self.thing(group, "t", {"size": 1, "unknown": 1})
        error = await self.refused(500, "", "PATCH", f"{path}/t", spec, kind=APPLY, fieldManager="one")
        self.assertIn(".spec.unknown: field not declared in schema", error.message)
        open_field = self.thing(group, "t", {"size": 1, "open": {"any": 1}})
        await self.call("PATCH", f"{path}/t", open_field, kind=APPLY, fieldManager="one")
        status = self.thing(group, "t") | {"status": {"unknown": 1}}
        error = await self.refused(500, "", "PATCH", f"{path}/t/status", status, kind=APPLY, fieldManager="one")
        self.assertIn(".status.unknown: field not declared in schema", error.message)


class CustomCase(ContractCase):
    """Kinds that a definition makes."""

    async def test_defaults_and_pruning(self) -> None:
        """Defaults are filled in, what the schema does not name is dropped, unless it is to be kept."""
        path, group = await self.definition()
        spec = {"size": 1, "unknown": 1, "open": {"any": {"thing": 1}}, "labels": {"x": "y"}}
        made = await self.call("POST", path, self.thing(group, "t", spec))
        self.assertEqual(
            made["spec"], {"size": 1, "colour": "red", "open": {"any": {"thing": 1}}, "labels": {"x": "y"}}
        )

    async def test_validation(self) -> None:
        """Every field that is wrong is named with what is wrong about it."""
        path, group = await self.definition()
        for spec, field, reason, text in (
            ({}, "spec.size", "FieldValueRequired", "Required value"),
            ({"size": 0}, "spec.size", "FieldValueInvalid", "spec.size in body should be greater than or equal to 1"),
            ({"size": 10}, "spec.size", "FieldValueInvalid", "spec.size in body should be less than or equal to 9"),
            (
                {"size": 1, "colour": "blue"},
                "spec.colour",
                "FieldValueNotSupported",
                'supported values: "red", "green"',
            ),
            ({"size": 1, "name": "A"}, "spec.name", "FieldValueInvalid", "spec.name in body should match '^[a-z]+$'"),
            ({"size": 1, "name": "abcdef"}, "spec.name", "FieldValueTooLong", "Too long: may not be more than 5 bytes"),
            (
                {"size": "1"},
                "spec.size",
                "FieldValueTypeInvalid",
                'spec.size in body must be of type integer: "string"',
            ),
            ({"size": 1, "parts": [{}]}, "spec.parts[0].name", "FieldValueRequired", "Required value"),
        ):
            error = await self.refused(422, "Invalid", "POST", path, self.thing(group, "t", spec))
            cause = error.details["causes"][0]
            self.assertEqual((cause["field"], cause["reason"]), (field, reason), spec)
            self.assertIn(text, cause["message"])
            self.assertTrue(error.message.startswith(f'Thing.{group} "t" is invalid: '), error.message)

    async def test_duplicate_list_keys(self) -> None:
        """Two elements of the same key are a duplicate."""
        path, group = await self.definition()
        parts = [{"name": "a"}, {"name": "a"}]
        error = await self.refused(422, "Invalid", "POST", path, self.thing(group, "t", {"size": 1, "parts": parts}))
        self.assertEqual(error.details["causes"][0]["reason"], "FieldValueDuplicate")
        self.assertEqual(error.details["causes"][0]["field"], "spec.parts[1]")

    async def test_strict_writers_hear_of_unknown_fields(self) -> None:
        """With fieldValidation=Strict an unknown field is 400."""
        path, group = await self.definition()
        body = self.thing(group, "t", {"size": 1, "unknown": 1})
        error = await self.refused(400, "BadRequest", "POST", path, body, fieldValidation="Strict")
        self.assertIn('strict decoding error: unknown field "spec.unknown"', error.message)

    async def test_status_is_apart(self) -> None:
        """The object's own path does not touch its status; the status path touches nothing else."""
        path, group = await self.definition()
        body = self.thing(group, "t", {"size": 1}) | {"status": {"phase": "Early"}}
        made = await self.call("POST", path, body)
        self.assertNotIn("status", made)
        change = {"spec": {"size": 5}, "status": {"phase": "Good"}, "metadata": {"labels": {"a": "b"}}}
        answer = await self.call("PATCH", f"{path}/t/status", change, kind=MERGE)
        self.assertEqual((answer["spec"]["size"], answer["status"]), (1, {"phase": "Good"}))
        self.assertNotIn("labels", answer["metadata"])
        self.assertEqual(answer["metadata"]["generation"], 1)
        answer = await self.call("PATCH", f"{path}/t", change | {"status": {"phase": "Bad"}}, kind=MERGE)
        self.assertEqual((answer["spec"]["size"], answer["status"]), (5, {"phase": "Good"}))
        self.assertEqual(answer["metadata"]["generation"], 2)

    async def test_defaults_and_pruning_of_a_status(self) -> None:
        """A status gets its defaults too, and loses what the schema does not name."""
        text = {"type": "string"}
        status = {"type": "object", "properties": {"phase": text, "tone": text | {"default": "calm"}}}
        path, group = await self.definition(schema=THING | {"properties": THING["properties"] | {"status": status}})
        await self.call("POST", path, self.thing(group, "t", {"size": 1}))
        change = {"status": {"phase": "Good", "unknown": 1}}
        patched = await self.call("PATCH", f"{path}/t/status", change, kind=MERGE)
        self.assertEqual(patched["status"], {"phase": "Good", "tone": "calm"})
        replaced = await self.call("PUT", f"{path}/t/status", patched | {"status": {"other": 1}})
        self.assertEqual(replaced["status"], {"tone": "calm"})

    async def test_replacement_needs_a_version(self) -> None:
        """Custom objects are not replaced without a version."""
        path, group = await self.definition()
        await self.call("POST", path, self.thing(group, "t", {"size": 1}))
        error = await self.refused(422, "Invalid", "PUT", f"{path}/t", self.thing(group, "t", {"size": 2}))
        self.assertIn("metadata.resourceVersion: Invalid value: 0", error.message)
        self.assertIn("must be specified for an update", error.message)

    async def test_no_strategic_patch(self) -> None:
        """Custom kinds have no strategic merge patch."""
        path, group = await self.definition()
        await self.call("POST", path, self.thing(group, "t", {"size": 1}))
        kind = "application/strategic-merge-patch+json"
        await self.refused(415, "UnsupportedMediaType", "PATCH", f"{path}/t", {"spec": {"size": 2}}, kind=kind)

    async def test_printer_columns(self) -> None:
        """Tables have the columns of the definition."""
        columns = [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
            {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
        ]
        path, group = await self.definition(additionalPrinterColumns=columns)
        await self.call("POST", path, self.thing(group, "t", {"size": 3}))
        status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await self.call("PATCH", f"{path}/t/status", status, kind=MERGE)
        table = await self.call("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
        self.assertEqual([each["name"] for each in table["columnDefinitions"]], ["Name", "Size", "Ready", "Colour"])
        self.assertEqual(table["rows"][0]["cells"], ["t", 3, "True", "red"])
        self.assertEqual(table["rows"][0]["object"]["kind"], "PartialObjectMetadata")

    async def test_deleted_definition_takes_its_objects(self) -> None:
        """With its definition a kind and all of its objects go."""
        path, group = await self.definition()
        await self.call("POST", path, self.thing(group, "t", {"size": 3}))
        name = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}"
        await self.call("DELETE", name)
        await self.eventually(lambda: self.gone(name), "the definition to go")
        await self.eventually(lambda: self.gone(path), "the kind to be served no longer")

    async def test_discovery_of_a_custom_kind(self) -> None:
        """A served kind is found under its group, with its short names."""
        _, group = await self.definition()
        # A kind is served a moment before it is listed.
        found = await self.eventually(lambda: self.found(f"/apis/{group}/v1"), "the kind to be listed")
        names = {each["name"]: each for each in found["resources"]}
        self.assertEqual(sorted(names), ["things", "things/status"])
        self.assertEqual((names["things"]["kind"], names["things"]["shortNames"]), ("Thing", ["th"]))

        async def listed() -> bool:
            groups = (await self.call("GET", "/apis"))["groups"]
            return any(each["name"] == group for each in groups)

        await self.eventually(listed, "the group to be listed")

    async def test_bad_definition(self) -> None:
        """A definition whose name is not plural.group is invalid."""
        body = {
            "metadata": {"name": "wrong"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "rights", "kind": "Right", "singular": "right", "listKind": "RightList"},
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
                ],
            },
        }
        error = await self.refused(
            422, "Invalid", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body
        )
        self.assertIn("metadata.name", [each["field"] for each in error.details["causes"]])
