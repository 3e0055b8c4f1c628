"""What is left of an object's labels and annotations when a lender takes none but the usual ones."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.reflection.forge.reflected import KEYS_ANNOTATION, DesiredObject, ReflectedKeys, portable_only
from liqod.model.names import ORIGIN_LABEL
from liqod.model.objects.portable_metadata import MAX_ANNOTATIONS_SIZE, MAX_KEYS


def desired(labels: dict[str, str], annotations: dict[str, str]) -> DesiredObject:
    keys = ReflectedKeys(labels=sorted(labels), annotations=sorted(annotations))
    noted = {**annotations, KEYS_ANNOTATION: msgspec.json.encode(keys).decode()}
    return DesiredObject(labels={**labels, ORIGIN_LABEL: "rome"}, annotations=noted, content={})


class PortableOnlyTests(SynchronousTestCase):
    """The fallback after the policy of metadata has refused an object."""

    def test_few_stay_as_they_are(self) -> None:
        """What a lender takes is kept, and what it does not grant is left out."""
        left = portable_only(desired({"app": "web", "a.example/b": "c"}, {"note": "n" * 16_000, "a.example/b": "c"}))
        self.assertEqual(left.labels, {"app": "web", ORIGIN_LABEL: "rome"})
        self.assertEqual(left.annotations["note"], "n" * 16_000)
        keys = msgspec.json.decode(left.annotations[KEYS_ANNOTATION], type=ReflectedKeys)
        self.assertEqual((keys.labels, keys.annotations), (["app"], ["note"]))

    @given(
        st.integers(0, 300), st.lists(st.sampled_from([0, 1, 5000, 20_000, 70_000]), max_size=6), st.integers(0, 300)
    )
    def test_no_more_than_a_lender_takes(self, labels: int, sizes: list[int], annotations: int) -> None:
        """Within the bounds of the policy, whatever there is at home, with ours and those that are short."""
        prefix = "helm.sh/" + "k" * 59
        many = {f"{prefix}{number:04}": "v" for number in range(annotations)}
        long = {f"long-{number}": "x" * size for number, size in enumerate(sizes)}
        left = portable_only(desired({f"{prefix}{number:04}": "v" for number in range(labels)}, {**many, **long}))
        self.assertEqual(left.labels[ORIGIN_LABEL], "rome")
        self.assertEqual(len(left.labels), min(labels + 1, MAX_KEYS))
        self.assertLessEqual(len(left.annotations), MAX_KEYS)
        self.assertLessEqual(sum(map(len, left.annotations.values())), MAX_ANNOTATIONS_SIZE)
        if not sizes:
            self.assertEqual(len(left.annotations), min(annotations + 1, MAX_KEYS))
        keys = msgspec.json.decode(left.annotations[KEYS_ANNOTATION], type=ReflectedKeys)
        self.assertEqual({*keys.labels, ORIGIN_LABEL}, set(left.labels))
        self.assertEqual({*keys.annotations, KEYS_ANNOTATION}, set(left.annotations))
