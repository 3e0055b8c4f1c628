"""Fingerprints as words, for two people to read to each other over the telephone.

Ten words carry the first 80 bits of the fingerprint. Comparing all of them protects against everybody who cannot make
2^80 keys until one fits; the full fingerprint is there for those who want more. Keys that can be made by the billion
(RSA with another exponent each) are refused where no CA vouches (``identity.tls``).
"""

from __future__ import annotations

from typing import Final

from liqod.model.ids import Fingerprint

COUNT: Final = 10
"""Words: one byte each. Releases before showed the first six of them."""

# WARNING: the list is part of what people compare: never change, reorder or replace a word.
_LIST: Final = """
    acid acorn actor agent alarm album alley amber anchor angle ankle apple apron arena arrow atlas
    attic audio award bacon badge baker bamboo banjo barn basil beach beard beaver bench berry bishop
    blanket blossom boat bonus border bottle branch bread brick bridge bronze brush bucket budget butter button
    cabin cable cactus camel candle canoe canvas carbon cargo carpet castle cedar cello cement chalk cherry
    chess circus cliff clover coffee comet copper coral cotton cradle crater cricket crystal cube curtain dagger
    daisy dancer desert diesel dinner dolphin donkey dragon drum eagle earth easel echo elbow ember engine
    fabric falcon farmer feather fiddle finger flame flute forest fossil fountain fox frost galaxy garden garlic
    gecko ginger giraffe glacier globe gravel guitar hammer harbor harvest hazel helmet heron hockey honey hotel
    iceberg igloo indigo insect island ivory jacket jaguar jelly jewel jigsaw jungle kayak kernel kettle kitten
    ladder lagoon lantern laser lemon lily linen lizard lobster locket lotus lumber magnet mango maple marble
    meadow medal melon mirror mitten monkey mosaic motor muffin museum napkin needle nickel noodle nutmeg oasis
    ocean olive onion opera orange orbit orchid otter oven oxygen oyster paddle palace panda paper parrot
    pebble pelican pencil pepper piano pigeon pillow pirate planet plum pocket pony potato prism pumpkin puzzle
    quartz rabbit radar raven ribbon river robin rocket ruby saddle salmon sandal satin scarf shadow silver
    spider spoon squid statue sugar sunset tablet teapot temple ticket tiger timber tomato tulip tunnel turtle
    umbrella vacuum valley velvet violin wagon walnut wheel window winter wizard wolf yellow zebra zigzag zipper
"""
WORDS: Final = tuple(_LIST.split())


def words(fingerprint: Fingerprint) -> str:
    """Return the words of a fingerprint, joined by '-'."""
    digest = bytes.fromhex(fingerprint.removeprefix("sha256:"))
    return "-".join(WORDS[byte] for byte in digest[:COUNT])
