"""The clusters that the end-to-end tests may run on: one lender as its administrator likes it, and others. Pure."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from tests.testbed import versions


@frozen
class Setup:
    """One choice of clusters.

    ``alone``: the tests run on the lender itself, and there is no daemon. ``lenders``: how many there are. ``release``:
    their Kubernetes. ``contract``: they grant what a lender grants by default, and no more.
    """

    alone: bool = False
    lenders: int = 1
    release: str = versions.KUBERNETES
    contract: bool = False

    @property
    def name(self) -> str:
        """What folders of results are named after; empty for the usual choice."""
        named = {
            "alone": self.alone,
            f"lenders-{self.lenders}": self.lenders > 1,
            f"lender-{self.release}": versions.release(self.release) != versions.KUBERNETES,
            "contract": self.contract,
        }
        return "+".join(name for name, holds in named.items() if holds)

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases of Kubernetes of one cluster after the other."""
        lenders = (versions.release(self.release),) * self.lenders
        return lenders if self.alone else (versions.KUBERNETES, *lenders)


USUAL: Final = Setup()
ALONE: Final = Setup(alone=True)
OTHERS: Final = {
    "default contract": Setup(contract=True),
    "two lenders": Setup(lenders=2),
    "lender of 1.30": Setup(release="1.30"),
}
"""What the page shows beside the usual choice, and the titles of the columns."""
