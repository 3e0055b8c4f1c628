"""Watches: from where, of what, until when."""

from __future__ import annotations

from tests.contract.base import MERGE, ContractCase, Events


class WatchCase(ContractCase):
    """What a watcher sees."""

    async def version(self) -> str:
        listed = await self.call("GET", f"{self.space}/configmaps", limit=1)
        return str(listed["metadata"]["resourceVersion"])

    async def saw(self, events: Events, name: str, *kinds: str) -> None:
        await self.eventually(lambda: len(events.of(name)) >= len(kinds), f"events of {name}: {kinds}")
        self.assertEqual(events.of(name), list(kinds))

    async def test_life_of_an_object(self) -> None:
        """From a version on, a watcher sees creation, change and deletion, each with its own version."""
        events = await self.watching(f"{self.space}/configmaps", resourceVersion=await self.version())
        await self.config_map("a", {"k": "1"})
        await self.call("PATCH", f"{self.space}/configmaps/a", {"data": {"k": "2"}}, kind=MERGE)
        await self.call("DELETE", f"{self.space}/configmaps/a")
        await self.saw(events, "a", "ADDED", "MODIFIED", "DELETED")
        versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in events.events]
        self.assertEqual(versions, sorted(set(versions)))
        self.assertEqual(events.events[-1]["object"]["data"], {"k": "2"})

    async def test_end_of_the_last_finalizer(self) -> None:
        """An object goes with its last finalizer in one event, and in the state that was stored."""
        await self.config_map("a", finalizers=["example.com/hold"])
        await self.call("DELETE", f"{self.space}/configmaps/a")
        events = await self.watching(f"{self.space}/configmaps", resourceVersion=await self.version())
        await self.call("PATCH", f"{self.space}/configmaps/a", {"metadata": {"finalizers": None}}, kind=MERGE)
        await self.config_map("b")
        await self.saw(events, "b", "ADDED")
        self.assertEqual(events.of("a"), ["DELETED"])
        last = next(each["object"] for each in events.events if each["type"] == "DELETED")
        self.assertEqual(last["metadata"]["finalizers"], ["example.com/hold"])

    async def test_past_changes_are_replayed(self) -> None:
        """What happened after the version is sent first."""
        version = await self.version()
        await self.config_map("a")
        await self.call("DELETE", f"{self.space}/configmaps/a")
        events = await self.watching(f"{self.space}/configmaps", resourceVersion=version)
        await self.saw(events, "a", "ADDED", "DELETED")

    async def test_watch_of_the_future(self) -> None:
        """A watch from a version that is not reached yet is no error: what has a lower version is left out of it."""
        future = str(int(await self.version()) + 10**6)
        events = await self.watching(
            f"{self.space}/configmaps", resourceVersion=future, allowWatchBookmarks="true", timeoutSeconds=4
        )
        await self.config_map("a")
        await self.eventually(lambda: events.ended, "the end of the watch")
        self.assertEqual(events.events, [])

    async def test_without_version_present_objects_come_first(self) -> None:
        """A watch without a version begins with what is there."""
        await self.config_map("a")
        events = await self.watching(f"{self.space}/configmaps")
        await self.saw(events, "a", "ADDED")
        await self.config_map("b")
        await self.saw(events, "b", "ADDED")

    async def test_coming_and_leaving_a_selection(self) -> None:
        """An object that comes to match was ADDED, one that no longer does was DELETED."""
        events = await self.watching(
            f"{self.space}/configmaps", resourceVersion=await self.version(), labelSelector="on=yes"
        )
        await self.config_map("a", labels={"on": "no"})
        for value in ("yes", "yes", "no"):
            change = {"metadata": {"labels": {"on": value}}, "data": {"n": value * 2}}
            await self.call("PATCH", f"{self.space}/configmaps/a", change, kind=MERGE)
        await self.call("PATCH", f"{self.space}/configmaps/a", {"metadata": {"labels": {"on": "yes"}}}, kind=MERGE)
        await self.saw(events, "a", "ADDED", "DELETED", "ADDED")

    async def test_watch_of_one_object(self) -> None:
        """A field selector on the name limits a watch to one object."""
        events = await self.watching(f"{self.space}/configmaps", fieldSelector="metadata.name=a")
        await self.config_map("b")
        await self.config_map("a")
        await self.saw(events, "a", "ADDED")
        self.assertEqual(events.of("b"), [])

    async def test_watch_ends_in_time(self) -> None:
        """A watch ends after its timeoutSeconds."""
        events = await self.watching(f"{self.space}/configmaps", timeoutSeconds=1)
        await self.eventually(lambda: events.ended, "the end of the watch")

    async def test_bookmark_before_the_end(self) -> None:
        """Who allows bookmarks gets one before the watch ends, with nothing but a version."""
        events = await self.watching(
            f"{self.space}/configmaps",
            resourceVersion=await self.version(),
            allowWatchBookmarks="true",
            timeoutSeconds=4,
        )
        await self.config_map("a")
        await self.eventually(lambda: events.ended, "the end of the watch")
        bookmarks = [each["object"] for each in events.events if each["type"] == "BOOKMARK"]
        self.assertTrue(bookmarks)
        self.assertEqual(bookmarks[0]["kind"], "ConfigMap")
        self.assertTrue(bookmarks[0]["metadata"]["resourceVersion"].isdigit())
        self.assertNotIn("name", bookmarks[0]["metadata"])

    async def test_watch_list(self) -> None:
        """sendInitialEvents streams what is there and marks its end by an annotated bookmark."""
        await self.config_map("a")
        events = await self.watching(
            f"{self.space}/configmaps",
            sendInitialEvents="true",
            allowWatchBookmarks="true",
            resourceVersionMatch="NotOlderThan",
        )
        await self.eventually(lambda: any(each["type"] == "BOOKMARK" for each in events.events), "the bookmark")
        self.assertEqual(events.of("a"), ["ADDED"])
        mark = next(each["object"] for each in events.events if each["type"] == "BOOKMARK")
        self.assertEqual(mark["metadata"]["annotations"], {"k8s.io/initial-events-end": "true"})
        await self.config_map("b")
        await self.saw(events, "b", "ADDED")

    async def test_watch_list_needs_its_match(self) -> None:
        """sendInitialEvents without resourceVersionMatch is refused."""
        error = await self.refused(
            422, "Invalid", "GET", f"{self.space}/configmaps", watch="true", sendInitialEvents="true"
        )
        self.assertEqual(error.details["causes"][0]["reason"], "FieldValueForbidden")

    async def test_watch_across_namespaces(self) -> None:
        """A watch without a namespace sees all of them."""
        label = f"from={self.namespace}"
        events = await self.watching("/api/v1/configmaps", labelSelector=label)
        await self.config_map("a", labels={"from": self.namespace})
        await self.saw(events, "a", "ADDED")

    async def test_watch_as_table(self) -> None:
        """A watch can be had as tables, one row each."""
        await self.config_map("a", {"k": "v"})
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        answer = await self.call(
            "GET",
            f"{self.space}/configmaps",
            accept=accept,
            watch="true",
            timeoutSeconds=1,
            fieldSelector="metadata.name=a",
        )
        self.assertEqual((answer["type"], answer["object"]["kind"]), ("ADDED", "Table"))
        self.assertEqual(answer["object"]["rows"][0]["cells"][:2], ["a", 1])
