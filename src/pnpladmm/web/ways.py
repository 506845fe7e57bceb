"""The ways to find a blur that need nothing but the picture, in the words of the page."""

from __future__ import annotations

from typing import Any

from pnpladmm.estimate import WAYS
from pnpladmm.estimate.way import make_way
from pnpladmm.tensors import InputError

WORDS = {
    "blind": ("Whole picture", "For camera shake. It looks for the path that explains all edges."),
    "edges": ("Edges", "For a lens out of focus. It measures how wide straight edges became."),
    "points": ("Stars or beads", "For many points of light on a dark ground. It follows how they change over it."),
}
"""Title and one line for each known way, the most usual one first."""


def offered() -> list[dict[str, str]]:
    """Name, title and one line of each way that can begin without a word from the user.

    >>> [way["title"] for way in offered() if way["name"] == "points"]
    ['Stars or beads']
    """
    names = [name for name in WORDS if name in WAYS]
    names += [name for name in WAYS if name not in WORDS]
    return [_described(name) for name in names if _needs_nothing(name)]


def _needs_nothing(name: str) -> bool:
    try:
        make_way(name, {})
    except InputError:  # it needs a second picture, or cannot be loaded
        return False
    return True


def _described(name: str) -> dict[str, str]:
    line: Any = (WAYS[name].__doc__ or "").strip().partition("\n")[0]
    title, words = WORDS.get(name, (name.capitalize(), line))
    return {"name": name, "title": title, "words": words}
