"""The vocabularies of TPC-H, which the star schema benchmark shares, and prose to fill comments with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")

NATIONS = (
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
)
"""Name and place of its region in `REGIONS`; the place in this list is the nation's key."""

NATION_NAMES = tuple(name for name, _ in NATIONS)

SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
INSTRUCTIONS = ("COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN")
MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
SIZES = ("SM", "LG", "MED", "JUMBO", "WRAP")
BOXES = ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM")
CONTAINERS = tuple(f"{size} {box}" for size in SIZES for box in BOXES)
TYPES = tuple(
    f"{size} {finish} {metal}"
    for size in ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
    for finish in ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
    for metal in ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
)
_COLOURS = """
    almond antique aquamarine azure beige bisque black blanched blue blush brown burlywood burnished chartreuse chiffon
    chocolate coral cornflower cornsilk cream cyan dark deep dim dodger drab firebrick floral forest frosted gainsboro
    ghost goldenrod green grey honeydew hot indian ivory khaki lace lavender lawn lemon light lime linen magenta maroon
    medium metallic midnight mint misty moccasin navajo navy olive orange orchid pale papaya peach peru pink plum
    powder puff purple red rose rosy royal saddle salmon sandy seashell sienna sky slate smoke snow spring steel tan
    thistle tomato turquoise violet wheat white yellow
"""
COLOURS = tuple(_COLOURS.split())

_SUBJECTS = ("a clerk", "our driver", "the buyer", "someone", "the night shift", "nobody", "a careful hand")
_VERBS = ("counts", "unloads", "weighs", "forgets", "finds", "signs for", "repacks", "photographs")
_OBJECTS = ("twelve crates", "the blue pallet", "a bent spoon", "wet cardboard", "the last box", "spare keys")
_ENDS = ("before noon", "in the rain", "by the gate", "without a word", "at low tide", "again", "on a Tuesday")

T = TypeVar("T")


def prose(choose: random.Random) -> str:
    """Return a sentence about nothing."""
    return " ".join(choose.choice(words) for words in (_SUBJECTS, _VERBS, _OBJECTS, _ENDS))


def draw_focused(choose: random.Random, focus: float, wanted: Sequence[T], every: Sequence[T]) -> T:
    """Return one of `wanted` with probability `focus`, else one of `every`."""
    return choose.choice(wanted if choose.random() < focus else every)


def phone(choose: random.Random, nation: int) -> str:
    """Return a telephone number whose first two digits are the country's: 10 more than the nation's key."""
    return f"{nation + 10}-{choose.randrange(100, 1000)}-{choose.randrange(100, 1000)}-{choose.randrange(1000, 10_000)}"


def address(choose: random.Random) -> str:
    """Return a street with a number."""
    return f"{choose.randrange(1, 200)} {choose.choice(COLOURS)} {choose.choice(('lane', 'road', 'quay', 'hill'))}"
