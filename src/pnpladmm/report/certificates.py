"""Certificates for people and for JSON."""

from __future__ import annotations

from typing import Any

from pnpladmm.solvers import Certificate, Level

WORDS = {
    Level.PROVED: "proved: it is a theorem that these iterations converge",
    Level.CONVEX: "proved: it is a theorem that these iterations converge to the best picture for this prior",
    Level.CHECKED: "proved for this run: the theorem's condition on the denoiser was measured, and it held",
    Level.ASSUMED: "proved on one assumption that cannot be measured: that the denoiser is an ideal one (MMSE)",
    Level.OUTSIDE: "none: no theorem covers these iterations",
}


def in_words(certificate: Certificate) -> str:
    """One sentence on what is proved of a run; if nothing is, it says what fails.

    Examples
    --------
    >>> in_words(Certificate(Level.CONVEX, "", ()))
    'proved: it is a theorem that these iterations converge to the best picture for this prior'
    """
    reasons = [*certificate.failures, *(str(c) for c in certificate.conditions if not c.holds)]
    if certificate.level is not Level.OUTSIDE or not reasons:
        return WORDS[certificate.level]
    return f"{WORDS[certificate.level]} ({'; '.join(reasons)})"


def summarise_certificate(certificate: Certificate) -> dict[str, Any]:
    """The whole certificate, ready for JSON."""
    return {
        "level": certificate.level.value,
        "words": in_words(certificate),
        "statement": certificate.statement,
        "conditions": [str(condition) for condition in certificate.conditions],
        "failures": list(certificate.failures),
        "advice": certificate.advice,
    }
