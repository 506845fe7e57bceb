"""What became of a run, in the words of a photographer. The numbers stay one click away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

CERTIFICATES = {
    "proved": "A theorem guarantees this result: it would not change with more work.",
    "convex": "A theorem guarantees this result: no other picture fits better by this method.",
    "checked": "A theorem covers this result, and its condition was measured during the run and held.",
    "assumed": "A theorem covers this result if the network is an ideal denoiser, which nobody can measure.",
    "outside": "Restored by experience, not by proof: no theorem covers this way of working. This is usual for the "
    "fast method.",
}
STRUCTURED = "residual is structured"
LARGE = "times the assumed noise"
SMALL = "of the assumed noise"


def verdict(outcome: dict[str, Any]) -> dict[str, Any]:
    """A mark (good, check or bad), a headline, and sentences with advice."""
    warnings = list(outcome["warnings"])
    if outcome["status"] in ("diverged", "non-finite"):
        mark, headline = "bad", "This did not work: the picture could not be computed."
    elif warnings:
        mark, headline = "check", "Look closely: something does not fit."
    else:
        mark, headline = "good", "It fits: what is left over looks like plain noise."
    return {
        "mark": mark,
        "headline": headline,
        "advice": advice(warnings),
        "certificate": CERTIFICATES[outcome["certificate"]["level"]],
        "noise": f"Noise of {outcome['noise']:.1f} (of 255) was assumed.",
    }


def advice(warnings: Sequence[str]) -> list[str]:
    """What a photographer can do about warnings of a restoration, each once."""
    return list(dict.fromkeys(_advice(warning) for warning in warnings))


def _advice(warning: str) -> str:
    if STRUCTURED in warning:
        return (
            "Edges of the picture are left in what should be noise. The blur is a little wrong, or the result is too "
            "smooth. Try another length or width first, then a lower strength."
        )
    if LARGE in warning:
        return "More is left over than the noise explains. Give a higher noise, or correct the blur."
    if SMALL in warning:
        return "Less is left over than the assumed noise. Give a lower noise for a crisper result."
    return warning
