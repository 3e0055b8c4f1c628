"""As much OpenAPI as ``kubectl apply`` asks for: which kinds exist, and that writes take ``fieldValidation``. Pure.

Core kinds have no schemas here: kubectl then merges with the types it was built with. Custom kinds have theirs.
"""

from __future__ import annotations

from kubesandbox.kinds.catalog import Catalog
from kubesandbox.kinds.kinds import Json, Kind
from kubesandbox.server.discovery import in_version


def index(catalog: Catalog) -> Json:
    """Return the document at /openapi/v3: where the document of each group version is."""
    paths = {"api/v1": {"serverRelativeURL": f"/openapi/v3/api/v1?hash={catalog.revision}"}}
    for name, versions in catalog.groups().items():
        for version in versions:
            at = f"apis/{name}/{version}"
            paths[at] = {"serverRelativeURL": f"/openapi/v3/{at}?hash={catalog.revision}"}
    return {"paths": paths}


def document(catalog: Catalog, group: str, version: str) -> Json:
    """Return the OpenAPI 3 document of a group version."""
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    paths: Json = {}
    schemas: Json = {}
    for kind in in_version(catalog, group, version):
        scope = "/namespaces/{namespace}" if kind.namespaced else ""
        paths[f"{base}{scope}/{kind.plural}"] = {"post": _operation(kind, "post")}
        paths[f"{base}{scope}/{kind.plural}/{{name}}"] = {
            method: _operation(kind, method) for method in ("get", "put", "patch", "delete")
        }
        schemas[_schema_name(kind)] = _schema(kind)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def document_v2(catalog: Catalog) -> Json:
    """Return the OpenAPI 2 document: definitions of all kinds, without paths."""
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36"},
        "paths": {},
        "definitions": {_schema_name(kind): _schema(kind) for kind in catalog.kinds()},
    }


def _gvk(kind: Kind) -> Json:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _schema_name(kind: Kind) -> str:
    group = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{group}.{kind.version}.{kind.kind}"


def _schema(kind: Kind) -> Json:
    schema = dict(kind.schema) if kind.schema is not None else {"type": "object"}
    return schema | {"x-kubernetes-group-version-kind": [_gvk(kind)]}


def _operation(kind: Kind, method: str) -> Json:
    operation: Json = {
        "x-kubernetes-action": {"delete": "delete", "get": "get", "patch": "patch", "post": "post", "put": "put"}[
            method
        ],
        "x-kubernetes-group-version-kind": _gvk(kind),
        "responses": {"200": {"description": "OK"}},
    }
    if method in ("patch", "post", "put"):
        operation["parameters"] = [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in ("dryRun", "fieldManager", "fieldValidation")
        ]
    if method == "patch":
        operation["requestBody"] = {"content": {"application/merge-patch+json": {"schema": {"type": "object"}}}}
    return operation
