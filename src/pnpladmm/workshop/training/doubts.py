"""Fit what a restored picture says of its PSF: the file `restoration/doubts.json`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pnpladmm.files import write_text
from pnpladmm.restoration.never_worse import GENTLE, HOPELESS, LEAST_GAIN, MUCH, REPEATS, UNEXPLAINED
from pnpladmm.restoration.psf_error import DOUBTFUL, NAMES, TRIAL, residual
from pnpladmm.workshop.experiments.dataset import load_dataset
from pnpladmm.workshop.training.doubt_cases import FACTORS, measure

LOST = 1.0
"""A wrong PSF is one that costs more than this, in dB."""
FALSE, TRIED = 0.04, 0.3
"""The shares of right PSFs that are called wrong, and that get a restoration on trial."""
SURE = 0.25
"""The gain is the one that this share of the pictures does not reach."""
RARE = 0.005
"""Evidence that is lower or higher than in so small a share of the runs counts no more than that."""
WEIGHT_DECAY = 0.01
BELOW = 2.0
"""So much more a dB below the observation counts."""
AGAIN = 0.3
"""The weight of pictures that were restored with a higher level already."""

Row: TypeAlias = dict[str, Any]


def train_doubts(out: Path, count: int, device: str = "cpu", say: Callable[[str], None] = print) -> None:
    """Restore `count` cases and write the coefficients. Cases that are done are kept beside the file."""
    crops = [(s.name, s.sharp.double()) for s in load_dataset("tune", 2 / 255, size=224).samples]
    parts = out.with_suffix(".cases.jsonl")
    rows = read_rows([parts]) if parts.is_file() else []
    done = {row["number"] for row in rows}
    for number in range(count):
        if number not in done:
            rows.append(measure(number, crops, device))
            with parts.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(rows[-1]) + "\n")
    found = fit(rows)
    write_text(out, json.dumps(found, indent=1) + "\n")
    for name, value in judged(rows, found).items():
        say(f"{name}: {value:.3f}")


def read_rows(paths: Iterable[Path]) -> list[Row]:
    """The cases of some files; a line that was cut off is left out."""
    found = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return found


def fit(rows: list[Row]) -> dict[str, list[float]]:
    """The coefficients of all three numbers."""
    first = [_first(row, which) for row in rows for which in _sides(row) if row.get("truth", 1) == 1]
    known, gently, lost, right = (torch.tensor(list(part), dtype=torch.float64) for part in zip(*first, strict=True))
    both, is_right, is_lost = torch.cat([known, gently], 1), right > 0, lost > LOST
    counts = is_right | is_lost
    alone = fitted(known[counts], lambda value: _logistic(value, is_lost[counts]))
    wrong = fitted(both[counts], lambda value: _logistic(value, is_lost[counts]))
    runs = [run for row in rows for which in _sides(row) for run in _runs(row, which)]
    seen, gains, curves, weights = (torch.tensor(list(part), dtype=torch.float64) for part in zip(*runs, strict=True))
    at = seen[:, NAMES.index("raised")].exp().clamp(FACTORS[0], FACTORS[-1]).log()
    ends = torch.quantile(seen, torch.tensor([RARE, 1 - RARE], dtype=torch.float64), 0)
    found = {
        "alone": placed(alone, known[is_right], FALSE),
        "suspect": placed(alone, known[is_right], TRIED),
        "wrong": placed(wrong, both[is_right], FALSE),
        "factor": fitted(seen, lambda value: (weights * _loss(value, at, curves)).sum() / weights.sum()),
        "gain": fitted(seen, lambda value: _pinball(gains - value)),
        "lowest": ends[0],
        "highest": ends[1],
    }
    return {name: value.tolist() for name, value in found.items()}


def placed(coefficients: Tensor, right: Tensor, share: float) -> Tensor:
    """The coefficients with a constant by which so large a share of right PSFs is above 0, JPEGs and others alike."""
    found, values, jpeg = coefficients.clone(), _of(coefficients, right), right[:, NAMES.index("compressed")] > 0
    limits = [torch.quantile(values[group], 1 - share) if bool(group.any()) else None for group in (~jpeg, jpeg)]
    plain = limits[0] if limits[0] is not None else limits[1]
    assert plain is not None
    found[0] -= plain
    if limits[1] is not None:
        found[1 + NAMES.index("compressed")] -= limits[1] - plain
    return found


def fitted(known: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """The constant and the coefficients (K + 1,) that minimise a loss of the linear function, with weight decay."""
    middle, spread = known.mean(0), known.std(0).clamp_min(1e-6)
    numbers = ((known - middle) / spread).detach()
    weights = torch.zeros(known.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    descent = torch.optim.LBFGS([weights], max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        descent.zero_grad()
        value = loss(numbers @ weights[1:] + weights[0]) + WEIGHT_DECAY * weights[1:].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    descent.step(closure)  # type: ignore[no-untyped-call]
    slopes = weights.detach()[1:] / spread
    return torch.cat([(weights.detach()[0] - slopes @ middle).view(1), slopes])


def judged(rows: list[Row], found: dict[str, list[float]]) -> dict[str, float]:
    """What the coefficients do on cases: shares of warnings, mean losses in dB, shares below the observation."""
    table = {name: torch.tensor(value, dtype=torch.float64) for name, value in found.items()}
    ends = [_end(row, which, table) for row in rows for which in _sides(row) if not row.get("made")]
    made = [_end(row, which, table) for row in rows for which in _sides(row) if row.get("made")]
    right = [end for end in ends if end["right"]]
    lost = [end for end in ends if not end["right"] and end["first loss"] > LOST]

    def mean(part: list[dict[str, float]], name: str) -> float:
        return sum(end[name] for end in part) / max(1, len(part))

    return {
        "right PSFs": len(right),
        "warned, right PSF": mean(right, "warned"),
        "withdrawn, right PSF": mean(right, "withdrawn"),
        "dB lost, right PSF": mean(right, "loss"),
        "wrong PSFs that lose 1 dB": len(lost),
        "warned of these": mean(lost, "warned"),
        "withdrawn of these": mean(lost, "withdrawn"),
        "worse than before": sum(end["below"] > 0.1 for end in ends) / max(1, len(ends)),
        "dB below the best level": mean([end for end in ends if not end["right"]], "loss"),
        "scenes that are no photographs": len(made),
        "worse than before without a word, of these": mean(made, "silent"),
        "warned of these, right PSF": mean([end for end in made if end["right"]], "warned"),
        "the same at the first level": mean([end for end in ends if not end["right"]], "first"),
    }


def _end(row: Row, which: str, table: dict[str, Tensor]) -> dict[str, float]:
    """What becomes of one picture, at the nearest of the levels that were tried."""
    side, before = row[which], row["before"]
    known = torch.tensor(side["evidence"], dtype=torch.float64)
    known = torch.minimum(torch.maximum(known, table["lowest"]), table["highest"])
    doubts = torch.nn.functional.softplus(_of(table["factor"], known), beta=4)
    logs = torch.tensor(FACTORS, dtype=torch.float64).log()
    at, again = 0, False
    for _ in range(REPEATS):
        if doubts[at] < DOUBTFUL:
            break
        again, at = True, int((logs - (logs[at] + doubts[at]).clamp_max(logs[-1])).abs().argmin())
    doubtful = bool(_of(table["gain"], known)[0] < LEAST_GAIN)
    both = torch.cat([known[0], known[FACTORS.index(TRIAL)]])
    warned = bool(_of(table["suspect"], known)[0] > 0) and bool(_of(table["wrong"], both) > 0)
    if warned:
        again, at = True, max(at, FACTORS.index(GENTLE))
    hopeless = bool(_of(table["gain"], known)[at] < LEAST_GAIN) or bool(doubts[at] > DOUBTFUL + HOPELESS)
    hopeless = hopeless or bool(residual(known)[at] > UNEXPLAINED)
    withdrawn = (again or warned) and hopeless
    score = before if withdrawn else side["psnr"][at]
    told = warned or withdrawn or doubtful or FACTORS[at] > MUCH
    return {
        "right": float(which == "right"),
        "warned": float(told),
        "silent": float(before - score > 0.1 and not told),
        "withdrawn": float(withdrawn),
        "loss": max(side["psnr"]) - score,
        "first": max(side["psnr"]) - side["psnr"][0],
        "first loss": row["right"]["psnr"][0] - side["psnr"][0],
        "below": before - score,
    }


def _sides(row: Row) -> tuple[str, ...]:
    """A shifted PSF is neither right nor wrong."""
    return ("right",) if row["kind"].startswith("shift") else ("right", "wrong")


def _first(row: Row, which: str) -> tuple[list[float], list[float], float, float]:
    """The evidence of the first run and of the one on trial, the loss in dB, and whether this is the right PSF."""
    loss = row["right"]["psnr"][0] - row[which]["psnr"][0]
    found = row[which]["evidence"]
    return found[0], found[FACTORS.index(TRIAL)], loss, float(which == "right")


def _runs(row: Row, which: str) -> list[tuple[list[float], float, list[float], float]]:
    """At each level the evidence, the gain over the observation, what each level would lose, and the weight."""
    side, before = row[which], row["before"]
    best = max(side["psnr"])
    losses = [best - score + BELOW * max(0.0, before - score) for score in side["psnr"]]
    weights = [1.0 if i == 0 else AGAIN / (len(FACTORS) - 1) for i in range(len(FACTORS))]
    return [
        (side["evidence"][i], max(-5.0, min(10.0, side["psnr"][i] - before)), losses, weights[i])
        for i in range(len(FACTORS))
    ]


def _loss(value: Tensor, at: Tensor, curves: Tensor) -> Tensor:
    """The loss at the level that `value` chooses, between those that were tried: a hat function for each."""
    logs = torch.tensor(FACTORS, dtype=torch.float64).log()
    goal = (at + torch.nn.functional.softplus(value, beta=4)).clamp_max(logs[-1])
    high = torch.searchsorted(logs, goal.detach().contiguous()).clamp(1, len(logs) - 1)
    share = (goal - logs[high - 1]) / (logs[high] - logs[high - 1])
    low, top = (curves.gather(1, index[:, None])[:, 0] for index in (high - 1, high))
    return (1 - share) * low + share * top


def _logistic(value: Tensor, wrong: Tensor) -> Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(value, wrong.double())


def _pinball(left: Tensor) -> Tensor:
    """Least for the quantile `SURE`."""
    return torch.maximum(SURE * left, (SURE - 1) * left).mean()


def _of(coefficients: Tensor, known: Tensor) -> Tensor:
    return known @ coefficients[1:] + coefficients[0]
