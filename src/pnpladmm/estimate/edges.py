"""A blur from straight edges of the blurred picture: the radius of a defocus, or the width of a Gaussian, by place."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np

from pnpladmm.blur import Blur, Estimate, Options, Table
from pnpladmm.blur.arrays import Array
from pnpladmm.blur.forms.maps import width_map
from pnpladmm.blur.parameters import NAMES, find_parameters, kernel_of, relative_change
from pnpladmm.estimate.edge_profiles import Edges, disc_step, find_edges, gaussian_step
from pnpladmm.estimate.psf_field import lattice, places_of, uniform_blur
from pnpladmm.estimate.scene import Scene
from pnpladmm.estimate.terms import Terms, regress
from pnpladmm.estimate.way import WAYS, Tell, Way
from pnpladmm.estimate.words import listed, where
from pnpladmm.restoration.noise import estimate_noise
from pnpladmm.tensors import InputError

KINDS = ("auto", "defocus", "gaussian")
FEWEST = 5
"""Edges without which nothing is said."""
SPREAD = 0.1
"""Of the logarithm of widths: edges that differ less show the same blur."""
STRONGEST = 60.0
"""Step over the noise from which an edge does not count more."""
ALIKE = 0.3
"""Difference of the logarithm of widths from which an edge is something else: a soft shadow, a thin line."""
PER_TERM = 8
"""Edges that a term of the field must have."""
BETTER = 0.25
"""Relative gain in the error of hidden edges that a more complicated field must bring."""
LOOKED_AT = 5
FAR = 1 / 3
"""Of the longer side: without an edge within this distance the width is extrapolated."""
WEAK = 0.1
"""Relative error of a kernel at which the confidence is one half."""
SHARP = 0.6
"""Pixels of sigma: pixels alone make edges as wide."""
SHOWN = 8
"""Profiles in the drawing."""


@WAYS.register("edges")
@dataclass(frozen=True)
class EdgeWidths(Way):
    """The width of blur from straight edges: one for the picture, or changing smoothly over it.

    Each edge is fitted by a step that a Gaussian and a disc blur. Shadows are wider and thin lines narrower than the
    blur; so the width on which most contrast agrees is taken. Where the spectrum of the whole picture shows a width
    without doubt and near that of the edges, both are joined.

    Parameters
    ----------
    kind : {"auto", "defocus", "gaussian"}
        What blurs; `auto` takes what fits the edges better.

    Examples
    --------
    >>> EdgeWidths().kind
    'auto'
    """

    kind: str = "auto"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind = {self.kind!r}: choose one of {', '.join(KINDS)}")

    def estimate(self, scene: Scene, tell: Tell) -> Blur:
        """The blur, with a table of edges."""
        tell("edges", 0.0)
        valid = scene.valid & ~scene.saturated
        if valid.sum() < 256 or scene.grey[valid].std() < 1e-4:
            raise InputError(f"{scene.name} is flat: it has no edges")
        noise = max(float(estimate_noise(scene.picture.pixels[scene.page : scene.page + 1].mean(1, True))[0]), 1e-4)
        edges = find_edges(scene.grey, valid, noise)
        if len(edges.places) < FEWEST:
            raise InputError(
                f"{scene.name}: {len(edges.places)} straight edges of {FEWEST} that are needed: try another way"
            )
        tell("field", 0.7)
        kind = self.kind if self.kind != "auto" else _better_kind(edges)
        widths = edges.radius if kind == "defocus" else edges.sigma
        field = _fitted_field(edges, widths, scene.size)
        return _blur(scene, kind, edges, widths, field, tell)


@dataclass(frozen=True, eq=False)
class WidthField:
    """`log width = terms(place) . coefficients`, and which edges agree with it."""

    terms: Terms
    coefficients: Array
    alike: Array
    tried: tuple[tuple[str, float], ...]

    def at(self, places: Array) -> Array:
        """Widths (N,) at places (N, 2)."""
        result: Array = np.exp(self.terms.at(places) @ self.coefficients)
        return result


def _better_kind(edges: Edges) -> str:
    """Disc or Gaussian, by the strongest edges."""
    weight = edges.contrast.clip(0, STRONGEST)
    return "defocus" if float(weight @ np.log(edges.misfit[:, 1] / edges.misfit[:, 0])) < 0 else "gaussian"


def _most_agreed(widths: Array, weights: Array) -> float:
    """The width around which there is most weight, within about `SPREAD` of its logarithm."""
    logs = np.log(widths)
    nodes = np.linspace(logs.min(), logs.max(), 400)
    density = (weights * np.exp(-0.5 * ((nodes[:, None] - logs) / SPREAD) ** 2)).sum(1)
    return float(np.exp(nodes[int(density.argmax())]))


def _fitted_field(edges: Edges, widths: Array, size: tuple[int, int]) -> WidthField:
    """The simplest field that predicts hidden edges as well as the best."""
    weights = edges.contrast.clip(0, STRONGEST)
    folds = np.random.default_rng(0).permutation(len(widths)) % 5
    best: tuple[float, WidthField] | None = None
    tried: list[tuple[str, float]] = []
    for degree in (0, 1, 2):
        terms = Terms("polynomial" if degree else "one", degree, size)
        if len(widths) < PER_TERM * terms.count and degree:
            break
        errors = np.zeros(len(widths))
        for fold in range(5):
            coefficients, _ = _coefficients(terms, edges.places, widths, weights, folds != fold)
            errors[folds == fold] = np.abs(np.log(widths) - terms.at(edges.places) @ coefficients)[folds == fold]
        score = float(weights @ np.minimum(errors, ALIKE) / weights.sum())
        tried.append((str(terms).replace("PSF", "width"), score))
        if best is None or score < best[0] * (1 - BETTER):
            coefficients, alike = _coefficients(terms, edges.places, widths, weights, np.ones(len(widths), bool))
            best = score, WidthField(terms, coefficients, alike, ())
    assert best is not None  # one width is always tried
    return WidthField(best[1].terms, best[1].coefficients, best[1].alike, tuple(tried))


def _coefficients(terms: Terms, places: Array, widths: Array, weights: Array, used: Array) -> tuple[Array, Array]:
    """Least squares for the edges that agree with the field, from the width on which most agree."""
    logs = np.log(widths)
    current = np.zeros(terms.count)
    current[0] = np.log(_most_agreed(widths[used], weights[used]))
    alike = used
    for limit in (2 * ALIKE, 1.5 * ALIKE, ALIKE, ALIKE) if terms.count > 1 else (ALIKE,):
        alike = used & (np.abs(logs - terms.at(places) @ current) < limit)
        if alike.sum() <= 2 * terms.count or terms.count == 1:
            break
        current = regress(terms.at(places[alike]), logs[alike, None], weights[alike])[:, 0]
    return current, alike


def _blur(scene: Scene, kind: str, edges: Edges, widths: Array, field: WidthField, tell: Tell) -> Blur:
    size, count = scene.size, int(field.alike.sum())
    left = np.log(widths / field.at(edges.places))[field.alike]
    scatter = float(np.sqrt((left**2).mean())) if count > 2 else ALIKE
    # Neighbouring edges are of the same things, so they count less than so many independent ones.
    error = scatter / float(np.sqrt(max(1.0, count / 4 - field.terms.count)))
    places = places_of(*lattice(size, LOOKED_AT))
    looked = field.at(places)
    name = NAMES[kind]
    warnings: list[str] = []
    notes: list[str] = []
    typical = float(np.median(looked))
    if field.terms.count == 1:
        tell("spectrum", 0.8)
        typical, error, said = _with_spectrum(scene, kind, typical, error)
        (notes if said.startswith("the spectrum shows") else warnings).append(said)
        blur = uniform_blur(kernel_of(kind, (typical,)), size, f"{count} edges, {kind}: {name} {typical:.2f}")
        looked = np.full(len(places), typical)
    else:
        whole = places_of(np.arange(size[1]), np.arange(size[0]))
        low, high = widths[field.alike].min(), widths[field.alike].max()
        values = field.at(whole).clip(low, high).reshape(size)
        blur = width_map(scene.name, values, "defocus" if kind == "defocus" else "gaussian", Options(size=size))
        source = f"{count} edges, {kind}: {name} {values.min():.1f} to {values.max():.1f}, {field.terms}"
        blur = blur.noted(source=source)
    change = relative_change(kind, (typical,), (typical * error, 0.0))
    far = np.linalg.norm(places[:, None] - edges.places[field.alike][None], axis=-1).min(1) > FAR * max(size)
    warnings += _warnings(scene, kind, typical, field, edges, places[far])
    estimate = Estimate(
        "edges",
        agreement=scatter,
        places=places,
        confidence=np.where(far, 0.5, 1.0) / (1 + (change / WEAK) ** 2),
        warnings=tuple(warnings),
        tables={"edges": _table(edges, widths, field)},
        figures={"Profiles of the strongest edges, and the blurred step": _drawing(edges, kind, widths, field)},
    )
    tried = ", ".join(f"{words} {value:.3f}" for words, value in field.tried)
    notes = [f"{count} of {len(widths)} edges agree, {name} {typical:.2f} +- {typical * error:.2f} pixels", *notes]
    if len(field.tried) > 1:
        notes.append(
            f"{field.terms} chosen by edges left out (error of the logarithm: {tried})".replace("PSF", "width")
        )
    return blur.noted(*notes, uncertainty=change, estimate=estimate)


def _with_spectrum(scene: Scene, kind: str, width: float, error: float) -> tuple[float, float, str]:
    """The width of edges and spectrum together, where the spectrum is sure and near; and what the spectrum says."""
    try:
        found = find_parameters(kind, scene.grey)
    except InputError:
        return width, max(error, 0.1), "the spectrum cannot confirm the width"
    near = abs(np.log(found.size / width)) < ALIKE
    if found.doubts:
        return width, max(error, 0.1), f"the spectrum does not confirm the width ({found.doubts[0]})"
    if near:  # each counts by its error
        own, other = 1 / max(error, 0.01) ** 2, 1 / max(found.size_error / found.size, 0.01) ** 2
        joined = float(np.exp((own * np.log(width) + other * np.log(found.size)) / (own + other)))
        return joined, (own + other) ** -0.5, f"the spectrum shows {found}"
    return width, max(error, 0.5), f"the edges say {width:.1f}, the spectrum {found.size:.1f} pixels: uncertain"


def _warnings(scene: Scene, kind: str, width: float, field: WidthField, edges: Edges, far: Array) -> list[str]:
    found = []
    if width < SHARP * (1 if kind == "gaussian" else 2):
        found.append(f"edges of {width:.1f} pixels: the picture is sharp, the kernel is a point")
    if len(far):
        names = listed([where(x, y, scene.size) for x, y in far])
        found.append(f"no straight edge near the {names}: the width there is taken from elsewhere")
    share = float(edges.contrast[field.alike].sum() / edges.contrast.sum())
    if share < 0.4:
        found.append(f"only {100 * share:.0f} % of the edges agree on a width: the blur may change from thing to thing")
    return found


def _table(edges: Edges, widths: Array, field: WidthField) -> Table:
    rows = [
        (round(float(x), 1), round(float(y), 1), round(float(w), 3), round(float(c), 1), "yes" if ok else "no")
        for (x, y), w, c, ok in zip(edges.places, widths, edges.contrast, field.alike, strict=True)
    ]
    return Table(("x", "y", "width", "contrast", "used"), tuple(rows))


def _drawing(edges: Edges, kind: str, widths: Array, field: WidthField) -> bytes:
    from matplotlib.figure import Figure

    chosen = np.flatnonzero(field.alike)
    chosen = chosen[np.argsort(-edges.contrast[chosen])][:SHOWN]
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, i in zip(np.atleast_1d(figure.subplots(2, SHOWN // 2, sharey=True)).ravel(), chosen, strict=False):
        distance, values = edges.profiles[i]
        step = disc_step if kind == "defocus" else gaussian_step
        fine = np.linspace(distance[0], distance[-1], 200)
        axes.plot(distance, values, ".", ms=3, color="0.5")
        axes.plot(fine, step(fine, float(widths[i])), lw=1)
        axes.set_title(f"{widths[i]:.2f} at {edges.places[i][0]:.0f}, {edges.places[i][1]:.0f}", fontsize=7)
        axes.tick_params(labelsize=6)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=90, format="png")
    return buffer.getvalue()
