"""The benchmarks: that rivals compute the same, and are left out where they do not."""

from __future__ import annotations

import itertools
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench_cases import CPU, QUICK, tiny_drunet
from pnpladmm.denoisers import load_denoiser
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.solvers import Annealed, make_method
from pnpladmm.workshop.bench import (
    inputs,
    operators,
    rivals,
)


@pytest.mark.parametrize("order", ["convolve-then-weight", "weight-then-convolve"])
@pytest.mark.parametrize("function", ["oaconvolve", "fftconvolve"])
@pytest.mark.parametrize("side", [5, 8])
def test_scipy_computes_our_blur(order: str, function: str, side: int) -> None:
    generator = torch.Generator().manual_seed(0)
    kernels = torch.rand(3, side, side, generator=generator, dtype=torch.float64)
    weights = torch.rand(3, 20, 17, generator=generator, dtype=torch.float64)
    blur = SpatiallyVaryingBlur(kernels, weights, "circular", order)  # type: ignore[arg-type]
    rival = rivals.scipy_blur(blur, function)
    x = torch.rand(2, 3, 20, 17, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(rival.forward(x), blur.forward(x), atol=1e-12, rtol=0)
    torch.testing.assert_close(rival.adjoint(x), blur.adjoint(x), atol=1e-12, rtol=0)


def circular(x: Tensor, kernel: Tensor, transposed: bool = False) -> Tensor:
    """(B, C, H, W) convolved with (b, c, k, k), shift by shift."""
    half = kernel.shape[-1] // 2
    total = torch.zeros_like(x)
    for a, b in itertools.product(range(kernel.shape[-2]), range(kernel.shape[-1])):
        shift = (half - a, half - b) if transposed else (a - half, b - half)
        total = total + kernel[..., a, b, None, None] * x.roll(shift, (-2, -1))
    return total


class DocumentedBlur:
    """deepinv's `SpaceVaryingBlur` as its documentation defines it; odd kernels, circular."""

    def __init__(
        self,
        filters: Tensor,
        multipliers: Tensor,
        padding: str = "valid",
        use_fft: bool = False,
        mask_first: bool = True,
        device: object = "cpu",
    ) -> None:
        assert padding == "circular"
        self.filters, self.multipliers, self.mask_first = filters, multipliers, mask_first

    def A(self, x: Tensor) -> Tensor:
        return self._apply(x, False)

    def A_adjoint(self, y: Tensor) -> Tensor:
        return self._apply(y, True)

    def _apply(self, v: Tensor, transposed: bool) -> Tensor:
        total = torch.zeros_like(v)
        for k in range(self.filters.shape[2]):
            h, w = self.filters[:, :, k], self.multipliers[:, :, k]
            weigh_first = self.mask_first != transposed
            total = total + (circular(w * v, h, transposed) if weigh_first else w * circular(v, h, transposed))
        return total


class WrongOrder(DocumentedBlur):
    """Says that it weights after the convolution, and does it before."""

    def __init__(self, *arguments: Any, mask_first: bool = True, **options: Any) -> None:
        super().__init__(*arguments, **options)


def pretend_deepinv(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    module = types.ModuleType("deepinv")
    module.physics = types.SimpleNamespace(SpaceVaryingBlur=kind)  # type: ignore[attr-defined]
    monkeypatch.setattr(rivals, "load_deepinv", lambda: module)


def test_deepinv_is_given_the_same_blur(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_deepinv(monkeypatch, DocumentedBlur)
    for order in (operators.PAPER_ORDER, operators.DEEPINV_ORDER):
        rows = operators.measure(operators.Case((24, 30), 3, 7, "segments", order), QUICK, {})
        assert [row["rival"] for row in rows] == [operators.OURS, *rivals.BLURS]
        for row in rows:
            assert row["difference"] < 1e-5
            assert row["missing"] is None
            assert row["left_out"] is None
            assert row["ratio"]["best"] > 0
        assert rows[0]["ratio"] == {"best": 1.0, "median": 1.0}


def test_a_rival_that_computes_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_deepinv(monkeypatch, WrongOrder)
    rows = operators.measure(operators.Case((24, 30), 3, 7, "segments", operators.PAPER_ORDER), QUICK, {})
    for row in rows[1:3]:
        assert row["left_out"] == "disagrees"
        assert row["difference"] > 1e-3
        assert row["ratio"] is None


def test_a_rival_expected_to_take_minutes_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_deepinv(monkeypatch, DocumentedBlur)
    pace = dict.fromkeys(rivals.BLURS, 1.0)
    rows = operators.measure(operators.Case((24, 30), 3, 7, "dense"), QUICK, pace)
    assert all(row["left_out"].startswith("about ") for row in rows[1:])
    assert rows[0]["forward"]["best"] > 0
    monkeypatch.setattr(operators, "_memory", lambda device: 1e3)
    rows = operators.measure(operators.Case((24, 30), 3, 7, "dense"), QUICK, {})
    assert all("GB" in row["left_out"] for row in rows)


def test_the_full_grid_is_what_was_asked_for() -> None:
    grid = operators.cases(quick=False)
    assert {case.kernels for case in grid} == {1, 5, 16, 64}
    assert {case.side for case in grid} == {15, 33, 65}
    assert {case.size for case in grid} == {(256, 256), (512, 512), (480, 640), (1024, 1024), (2048, 2048)}
    assert sum((c.size, c.kernels, c.side) == operators.TARGET for c in grid) == 4
    assert [c.work for c in grid] == sorted(c.work for c in grid)


def test_real_deepinv_agrees() -> None:
    try:
        rivals.load_deepinv()
    except rivals.Missing as reason:
        pytest.skip(str(reason))
    for order in (operators.PAPER_ORDER, operators.DEEPINV_ORDER):
        rows = operators.measure(operators.Case((40, 48), 3, 15, "segments", order), QUICK, {})
        assert all(row["difference"] < 1e-5 for row in rows)
        assert rows[1]["ratio"]["best"] > 0


def test_real_deepinv_runs_our_weights_and_our_schedule(tmp_path: Path) -> None:
    try:
        rivals.load_deepinv()
    except rivals.Missing as reason:
        pytest.skip(str(reason))
    from pnpladmm.workshop.bench import deepinv_solvers

    path = tiny_drunet(tmp_path)
    ours = load_denoiser(path)
    theirs = deepinv_solvers.deepinv_drunet(str(path), CPU)
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(theirs(x, 0.1), ours(x, 0.1), atol=1e-5, rtol=0)
    problem, _ = inputs.make_problem((64, 64), 3, 0.04, CPU)
    method = make_method("fast", ours, problem, inputs.noise_of(problem), calls=4)
    assert isinstance(method, Annealed)
    image = deepinv_solvers.half_quadratic(problem, 0.04, method, ours)()
    assert image.shape == problem.observed.shape
    assert bool(torch.isfinite(image).all())


def test_missing_deepinv_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepinv", None)
    rivals.load_deepinv.cache_clear()
    with pytest.raises(rivals.Missing, match=r"deepinv, which is not installed: .*pnpladmm\[deepinv\]"):
        rivals.load_deepinv()
    rivals.load_deepinv.cache_clear()
