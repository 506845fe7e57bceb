r"""The influence of `beta` and `L_x` at a fixed denoiser, inside and outside the theorem, and where LADMM diverges.

With `r = L_x / (beta ||H||^2)` and `c = L_h / beta` the theorem asks for `r > 1` and `c < 1`. What happens outside
follows from the mode that `H` passes most strongly: where the denoiser leaves it alone, an iteration maps
`(x, z / ||H||)` linearly by

    [[1 - 1/r,            (1 - c) / r              ],
     [(1 - 1/r) / (1 + c), ((1 - c) / r + c) / (1 + c)]]

(Gaussian noise, `u = c z`), whose eigenvalues stay inside the unit circle exactly for

    r > 3 c / (2 + 4 c):      1/2 at beta = L_h,  3/4 as beta -> 0,  0 as beta -> infinity.

A denoiser that shrinks the mode only helps, so divergence is to be found at or below that line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pnpladmm.metrics import PAPER, psnr
from pnpladmm.solvers import LADMM, Progress, Result
from pnpladmm.solvers.settings import Row
from pnpladmm.workshop.experiments.batches import Batch, columns, solve_all
from pnpladmm.workshop.experiments.comparison import Compared, chosen_methods
from pnpladmm.workshop.experiments.output import write_result
from pnpladmm.workshop.experiments.setup import Setup
from pnpladmm.workshop.experiments.stability_page import draw_parameters, linear_limit
from pnpladmm.workshop.experiments.units import Advance, Unit, run_units

COUNT = 4
ITERATIONS, QUICK_ITERATIONS = 150, 20
BISECTIONS, QUICK_BISECTIONS = 8, 4
BETAS: tuple[float, ...] = (0.03, 0.1, 0.3, 0.6, 1.001, 2.0, 4.0, 10.0)
QUICK_BETAS: tuple[float, ...] = (0.1, 1.001, 4.0)
"""`beta / L_h` at which the limit of `r` is looked for."""
LOWEST, HIGHEST = 0.02, 1.5
"""Where the limit of `r` is looked for."""
STILL = 1e-3
"""A relative change below this is no divergence, whatever it does."""

RATIOS_AT_TUNED: tuple[float, ...] = (8.0, 4.0, 2.0, 1.001, 0.8, 0.65)
BETAS_INSIDE: tuple[float, ...] = (0.25, 1.001, 2.0, 3.9)
RATIOS_AT_NOISE: tuple[float, ...] = (0.3, 0.45, 0.6, 1.001, 2.0, 4.0)


def make_parameters(setup: Setup) -> dict[str, Any]:
    """Curves of PSNR for several `beta` and `L_x`, and the limits of stability; write and draw them."""
    ladmm, certified = chosen_methods("ladmm,certified")
    units: list[Unit] = []
    loaded = setup.samples("test", count=COUNT)
    if setup.quick:
        loaded = {noise: samples[:1] for noise, samples in loaded.items()}
    for noise, samples in loaded.items():
        for panel in _panels(setup, ladmm, certified, noise):
            batches = setup.batches(samples, repeat=len(panel["r"]))
            units += [_curve_unit(setup, batch, noise, panel) for batch in batches]
        betas = QUICK_BETAS if setup.quick else BETAS
        sigma_d = _sigma_inside(setup, certified, noise)
        batches = setup.batches(samples, repeat=len(betas))
        units += [_limit_unit(setup, batch, noise, betas, sigma_d) for batch in batches]
    curves: dict[tuple[float, str], list[tuple[Unit, dict[str, Any]]]] = {}
    limits: dict[float, list[dict[str, Any]]] = {}
    for unit, values in run_units(setup, "parameters", units):
        if unit.key["part"] == "limits":
            limits.setdefault(unit.key["noise"], []).append(values)
        else:
            curves.setdefault((unit.key["noise"], unit.key["part"]), []).append((unit, values))
    data = {
        "experiment": "parameters",
        **setup.described(loaded),
        "panels": [_panel(noise, part, found) for (noise, part), found in curves.items()],
        "limits": [_limits(noise, parts) for noise, parts in limits.items()],
    }
    write_result(setup.out, "parameters", data, draw_parameters)
    return data


def _sigma_inside(setup: Setup, certified: Compared, noise: float) -> float:
    """The `sigma_d` (of 255) of certified runs; where they are relaxed, the one of a prior as strong without it.

    A prior's strength grows like `gamma sigma_d^2`: exactly so where `D` is linear and near to `Id`.
    """
    row = setup.row(certified, noise)
    return row["sigma_d"] * math.sqrt(row["relaxation"])


def _panels(setup: Setup, ladmm: Compared, certified: Compared, noise: float) -> list[dict[str, Any]]:
    """Each a fixed denoiser and pairs `beta / L_h`, `r`; in the first, `L_x` is tuned LADMM's and `beta` follows."""
    tuned: Row = setup.row(ladmm, noise)
    inside = _sigma_inside(setup, certified, noise)
    some = slice(None, None, 2) if setup.quick else slice(None)
    at_tuned, at_noise, inner = RATIOS_AT_TUNED[some], RATIOS_AT_NOISE[some], BETAS_INSIDE[some]
    # L_x / L_h, the pictures' ||H||^2 left out: beta = L_x / (r ||H||^2).
    tuned_L_x = tuned["lambda"] * (noise / tuned["sigma_d"]) ** 2
    ratios = tuple(4.0 / beta for beta in inner)
    return [
        {"part": "beta, tuned L_x", "sigma_d": tuned["sigma_d"], "L_x": tuned_L_x, "beta": None, "r": at_tuned},
        {"part": "beta, L_x inside", "sigma_d": inside, "L_x": None, "beta": inner, "r": ratios},
        {"part": "L_x", "sigma_d": inside, "L_x": None, "beta": (1.001,) * len(at_noise), "r": at_noise},
    ]


def _curve_unit(setup: Setup, batch: Batch, noise: float, panel: dict[str, Any]) -> Unit:
    iterations = QUICK_ITERATIONS if setup.quick else ITERATIONS
    values = len(panel["r"])

    def compute(advance: Advance) -> dict[str, Any]:
        norm, L_h = _constants(batch)
        r = norm.new_tensor(panel["r"]).repeat(len(norm) // values)
        if panel["L_x"] is None:
            beta = norm.new_tensor(panel["beta"]).repeat(len(norm) // values) * L_h
            L_x = r * beta * norm
        else:
            L_x = (panel["L_x"] * L_h).expand(len(norm))
            beta = L_x / (r * norm)
        scores: list[Tensor] = []

        def look(step: Progress) -> None:
            scores.append(psnr(step.state.x, batch.sharp, PAPER))
            advance(len(norm))

        method = LADMM(setup.denoiser, panel["sigma_d"] / 255, beta=beta, L_x=L_x)
        result = solve_all(batch, method, iterations, callback=look, record=True)
        return {
            "beta": (beta / L_h).tolist(),
            "psnr": torch.stack(scores).T.tolist(),
            "x_change": columns(result.history.x_change),
            "diverged": diverged(result).tolist(),
        }

    key = setup.unit_key("parameters", batch, noise=noise, iterations=iterations, **panel)
    return Unit(key, batch, iterations * len(batch.names), f"{panel['part']}, noise {noise:g}", compute)


def _limit_unit(setup: Setup, batch: Batch, noise: float, betas: Sequence[float], sigma_d: float) -> Unit:
    """The limit of `r` by bisection in its logarithm, for all pictures and `beta` at once."""
    iterations = QUICK_ITERATIONS if setup.quick else ITERATIONS
    steps = QUICK_BISECTIONS if setup.quick else BISECTIONS

    def compute(advance: Advance) -> dict[str, Any]:
        norm, L_h = _constants(batch)
        beta = norm.new_tensor(betas).repeat(len(norm) // len(betas)) * L_h
        low, high = torch.full_like(norm, LOWEST).log(), torch.full_like(norm, HIGHEST).log()
        for _ in range(steps):
            middle = (low + high) / 2
            method = LADMM(setup.denoiser, sigma_d / 255, beta=beta, L_x=middle.exp() * beta * norm)
            result = solve_all(batch, method, iterations, callback=lambda _: advance(len(norm)), record=True)
            bad = diverged(result).to(norm.device)
            low, high = torch.where(bad, middle, low), torch.where(bad, high, middle)
        limits = {name: end.exp().reshape(-1, len(betas)).tolist() for name, end in (("low", low), ("high", high))}
        return {"beta": list(betas), **limits}

    key = setup.unit_key(
        "parameters", batch, part="limits", noise=noise, iterations=iterations, steps=steps, beta=betas, sigma_d=sigma_d
    )
    return Unit(key, batch, steps * iterations * len(batch.names), f"limits of stability, noise {noise:g}", compute)


def _constants(batch: Batch) -> tuple[Tensor, Tensor]:
    """The upper bound of `||H||^2` and `L_h`, each (B,)."""
    norm = batch.problem.norm_squared.upper
    return norm, batch.problem.L_h().to(norm)


def diverged(result: Result) -> Tensor:
    """(B,): the picture blew up, or at the end of the run its changes are large and larger than at half time."""
    blown = [status.failed for status in result.statuses]
    change = result.history.x_change
    window = max(3, len(change) // 10)
    late = change[-window:].nanmean(0).nan_to_num(0.0)
    half = change[len(change) // 2 - window : len(change) // 2].nanmean(0).nan_to_num(0.0)
    return torch.tensor(blown) | ((late > STILL) & (late > half))


def _panel(noise: float, part: str, found: Sequence[tuple[Unit, dict[str, Any]]]) -> dict[str, Any]:
    """The curves of a panel, mean PSNR over the pictures, one for each pair of parameters."""
    key = found[0][0].key
    curves = []
    for i, r in enumerate(key["r"]):
        pick = [(values, j) for _, values in found for j in range(i, len(values["psnr"]), len(key["r"]))]
        scores = torch.tensor([values["psnr"][j] for values, j in pick], dtype=torch.float64)
        beta = sum(values["beta"][j] for values, j in pick) / len(pick)
        curves.append(
            {
                "beta": beta,
                "r": r,
                "L_x": None if key["L_x"] is None else key["L_x"],
                "inside": bool(beta >= 1 and r > 1),
                "psnr": scores.mean(0).tolist(),
                "diverged": sum(values["diverged"][j] for values, j in pick),
                "pictures": len(pick),
            }
        )
    return {"noise": noise, "part": part, "sigma_d": key["sigma_d"], "curves": curves}


def _limits(noise: float, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each picture: between `low` (diverges) and `high` (does not)."""
    betas = parts[0]["beta"]
    low, high = ([picture for part in parts for picture in part[name]] for name in ("low", "high"))
    found = [
        {
            "beta": beta,
            "low": [picture[i] for picture in low],
            "high": [picture[i] for picture in high],
            "linear": linear_limit(beta),
        }
        for i, beta in enumerate(betas)
    ]
    return {"noise": noise, "searched": [LOWEST, HIGHEST], "betas": found}
