"""Places in a picture in words."""

from __future__ import annotations

from pnpladmm.blur.options import Size


def where(x: float, y: float, size: Size) -> str:
    """The part of a picture of `size` (H, W) that a place lies in, by thirds.

    Examples
    --------
    >>> where(10, 90, (100, 100)), where(50, 50, (100, 100)), where(90, 50, (100, 100))
    ('lower left', 'middle', 'right')
    """
    height, width = size
    down = ("upper", "", "lower")[min(2, max(0, int(3 * y / height)))]
    across = ("left", "", "right")[min(2, max(0, int(3 * x / width)))]
    if down and not across:
        return f"{down} middle"
    return f"{down} {across}".strip() or "middle"


def listed(parts: list[str]) -> str:
    """Words in a row: `a, b and c`, each once.

    Examples
    --------
    >>> listed(["a", "b", "a", "c"])
    'a, b and c'
    """
    parts = list(dict.fromkeys(parts))
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
