"""In which form an answer is wanted: whole objects, tables, or metadata alone. Pure."""

from __future__ import annotations

from typing import Final

import attrs
import msgspec

from kubesandbox.kinds.kinds import Json, Kind
from kubesandbox.server import table
from kubesandbox.store.listing import Page, encode_stored
from kubesandbox.store.state import Stored

_JSON: Final = "application/json"


@attrs.frozen
class Rendering:
    """``form`` is empty (objects), Table, PartialObjectMetadata; ``include`` is what table rows hold of the object."""

    kind: Kind
    form: str
    include: str
    now: float

    @property
    def plain(self) -> bool:
        return not self.form

    @property
    def content_type(self) -> str:
        return _JSON

    @property
    def watch_content_type(self) -> str:
        return _JSON

    def one(self, stored: Stored) -> bytes:
        """Return one object's answer."""
        if not self.form:
            return encode_stored(self.kind, stored)
        if self.form == "Table":
            metadata = {"resourceVersion": stored.object["metadata"]["resourceVersion"]}
            return msgspec.json.encode(table.render(self.kind, [stored.object], metadata, self.include, self.now))
        return msgspec.json.encode(self._metadata(stored))

    def many(self, page: Page) -> bytes:
        """Return a list's answer, when it is not plain."""
        if self.form == "Table":
            bodies = [stored.object for stored in page.items]
            return msgspec.json.encode(table.render(self.kind, bodies, page.metadata(), self.include, self.now))
        items = [self._metadata(stored) for stored in page.items]
        kind = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        return msgspec.json.encode(kind | {"metadata": page.metadata(), "items": items})

    def event(self, stored: Stored) -> bytes:
        """Return an object as it stands in a watch event."""
        return self.one(stored)

    def _metadata(self, stored: Stored) -> Json:
        kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        return kind | {"metadata": stored.object["metadata"]}


def rendering_of(accept: str, kind: Kind, query: dict[str, str], now: float) -> Rendering:
    """Return the form that an Accept header asks for first among those that there are."""
    form = ""
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        if media not in (_JSON, "*/*", "application/*"):
            continue
        wanted = dict(part.partition("=")[::2] for part in parameters)
        form = wanted.get("as", "")
        if form in ("", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
            form = form.removesuffix("List")
            break
    return Rendering(kind, form, query.get("includeObject", "Metadata"), now)
