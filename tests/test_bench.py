"""The benchmarks: that rivals compute the same, that clocks are read right, that the JSON holds what the table says.

Nothing here looks at how fast anything is: CI machines are shared.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from conftest import Run
from pnpladmm.denoisers import load_denoiser
from pnpladmm.denoisers.drunet import DRUNet
from pnpladmm.operators import SpatiallyVaryingBlur
from pnpladmm.solvers import ADMM, Annealed, make_method
from pnpladmm.workshop.bench import (
    commands,
    growth,
    inputs,
    instruments,
    memory,
    operators,
    report,
    restoration,
    rivals,
    shares,
    timing,
)
from pnpladmm.workshop.bench.instruments import BLUR, DENOISER, PRECONDITIONER, Spans

CPU = torch.device("cpu")
QUICK = report.Options(CPU, quick=True)


def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only moves when a test moves it."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    return now


def test_rivals_take_turns_and_the_first_call_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now, order = clock(monkeypatch), []
    costs = {"a": iter([9.0, 3.0, 1.0, 2.0]), "b": iter([4.0, 4.0, 8.0, 6.0])}

    def call(name: str) -> None:
        order.append(name)
        now[0] += next(costs[name])

    taken = timing.take_turns({n: lambda n=n: call(n) for n in costs}, CPU, samples=3, least=3, budget=100.0)
    assert order == ["a", "b"] * 4
    assert taken["a"].samples == (3.0, 1.0, 2.0)
    assert (taken["a"].best, taken["a"].median) == (1.0, 2.0)
    assert taken["b"].as_json() == {"best": 4.0, "median": 6.0, "samples": 3}


def test_slow_rivals_drop_out_and_short_calls_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    now, counts = clock(monkeypatch), {"slow": 0, "short": 0}

    def call(name: str, seconds: float) -> None:
        counts[name] += 1
        now[0] += seconds

    runs = {"slow": lambda: call("slow", 5.0), "short": lambda: call("short", timing.SAMPLE_SECONDS / 4)}
    taken = timing.take_turns(runs, CPU, samples=3, least=2, budget=1.0)
    assert taken["slow"].samples == (5.0, 5.0)
    assert counts["slow"] == 2  # the first call counts where it exceeds the budget
    assert counts["short"] == 2 + 3 * 4
    assert taken["short"].best == pytest.approx(timing.SAMPLE_SECONDS / 4)


@pytest.mark.parametrize("kind", ["segments", "dense"])
def test_weights_sum_to_one_and_segments_are_local(kind: inputs.Weights) -> None:
    weights = inputs.make_weights(kind, 12, (90, 120), CPU)
    torch.testing.assert_close(weights.sum(0), torch.ones(90, 120), atol=1e-5, rtol=0)
    covered = (weights > 0).float().mean((1, 2))
    assert float(weights.min()) >= 0
    assert bool((covered < 0.4).all() if kind == "segments" else (covered == 1).all())
    torch.testing.assert_close(inputs.make_kernels(5, 15).sum((1, 2)), torch.ones(5), atol=1e-5, rtol=0)


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


def tiny_drunet(tmp_path: Path) -> Path:
    network = DRUNet(3, (8, 8, 16, 16), 2)
    network.initialise()
    path = tmp_path / "tiny.safetensors"
    save_file(network.state_dict(), path)
    return path


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


def test_nested_spans_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock(monkeypatch)
    spans = Spans(CPU)

    def work(seconds: float) -> None:
        now[0] += seconds

    inner = spans.wrap("inner", work)

    def outer() -> None:
        now[0] += 2.0
        inner(3.0)

    spans.wrap("outer", outer)()
    inner(1.0)
    assert spans.seconds() == {"outer": 5.0, "inner": 1.0}
    assert spans.calls == {"outer": 1, "inner": 1}


def test_the_timed_run_counts_calls_and_changes_nothing() -> None:
    problem, _ = inputs.make_problem((40, 48), 3, 0.04, CPU, side=9)
    seen: list[Tensor] = []

    def smooth(x: Tensor, sigma: object) -> Tensor:
        seen.append(x)
        return F.avg_pool2d(x, 3, 1, 1)

    method = Annealed(smooth, 0.05, calls=5, cg_iterations=3, cg_tolerance=0.0)
    instruments.run_bare(problem, method)
    timed = instruments.timed_run(problem, method)
    assert timed.calls[DENOISER] == 5
    assert timed.calls[BLUR] >= 5 * 2
    assert 0 < timed.seconds[DENOISER] + timed.seconds[BLUR] <= timed.total
    assert set(instruments.timed_run(problem, method, denoiser_only=True).calls) == {DENOISER}

    admm = ADMM(smooth, 0.05, rho=100.0)
    timed = instruments.timed_run(problem, admm)
    assert timed.calls[PRECONDITIONER] > 100
    assert timed.seconds[PRECONDITIONER] > 0
    for before, after, again in zip(seen[:5], seen[5:10], seen[10:15], strict=True):
        assert torch.equal(before, after)
        assert torch.equal(before, again)


def test_a_timed_preconditioner_is_the_one_inside() -> None:
    problem, _ = inputs.make_problem((40, 48), 3, 0.04, CPU, side=9)
    r = torch.randn(problem.shape, generator=torch.Generator().manual_seed(0))
    precision, first, second = torch.tensor(625.0), torch.tensor(30.0), torch.tensor(3.0)
    spans = Spans(CPU)
    made = instruments.timed_operator(problem.operator, spans).preconditioner(precision, first)
    assert made is not None
    made(r)
    made.set(second)
    expected = problem.operator.preconditioner(precision, second)
    assert expected is not None
    torch.testing.assert_close(made(r), expected(r), rtol=1e-6, atol=0)
    assert not made.recordable
    assert spans.calls[PRECONDITIONER] == 3


def test_operations_are_counted() -> None:
    assert instruments.operations_per_pixel(load_denoiser("light"), 3, CPU) == 2 * 211_520
    assert instruments.operations_per_pixel(load_denoiser("tv"), 3, CPU) is None
    assert instruments.matrix_rate(CPU, 64) > 0


def test_memory_is_that_of_the_case(tmp_path: Path) -> None:
    case = {"denoiser": str(tiny_drunet(tmp_path)), "weights": "dense", "pictures": 1, "kernels": 8}
    small, large = (memory.peak_of({**case, "size": size}) for size in (64, 384))
    # 8 weights, their transforms and the pictures: more than 30 floats a pixel.
    assert large > 384**2 * 4 * 30
    assert large > 2 * small


def without_paths(text: str) -> bool:
    return str(Path.home()) not in text and "/tmp" not in text and str(Path.cwd()) not in text


@pytest.mark.parametrize("name", ["operators", "restoration", "shares", "growth"])
def test_quick_runs_write_whole_json(name: str, tmp_path: Path, run: Run) -> None:
    denoiser = str(tiny_drunet(tmp_path))
    code, out, _ = run("bench", name, "--quick", "--out", str(tmp_path), "--denoiser", denoiser)
    assert code == 0
    text = (tmp_path / f"{name}-cpu-quick.json").read_text()
    assert without_paths(text)
    found = json.loads(text)
    assert found["benchmark"] == name
    assert found["quick"] is True
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["torch"] == torch.__version__
    assert f"{name}-cpu-quick.json" in out
    for column in importlib.import_module(f"pnpladmm.workshop.bench.{name}").COLUMNS:
        assert column.split()[0] in out
    rows = found["rows"]
    {"operators": check_operators, "restoration": check_restoration, "shares": check_shares, "growth": check_growth}[
        name
    ](rows)


def check_operators(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == len(operators.cases(True)) * (1 + len(rivals.BLURS))
    for row in rows:
        if row["missing"] is None:
            assert row["difference"] < 1e-5
            assert row["ratio"]["median"] > 0
    assert sum(row["rival"].startswith("scipy") and row["missing"] is None for row in rows) == 2 * len(
        operators.cases(True)
    )


def check_restoration(rows: list[dict[str, Any]]) -> None:
    found = {row["method"]: row for row in rows}
    reference = found[restoration.REFERENCE]
    assert reference["denoiser_calls"] == 100
    assert found[restoration.FASTEST]["denoiser_calls"] == 8
    assert found[restoration.FASTEST]["time_ratio"] == {"best": 1.0, "median": 1.0}
    assert found["scikit-image Richardson-Lucy"]["psnr"] > found["blurred"]["psnr"]
    for row in rows:
        assert np.isclose(row["over_ladmm"], row["psnr"] - reference["psnr"], atol=1e-9)


def check_shares(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        parts = sum(row[f"{part}_seconds"] for part in shares.PARTS)
        assert parts == pytest.approx(row["watched_seconds"], rel=1e-6)
        assert row["outside_share"] == pytest.approx(1 - row["denoiser_seconds"] / row["watched_seconds"], rel=1e-6)
        assert row["calls"][DENOISER] == shares.CALLS
        assert 0 < row["share_of_matrix_product"] < 2


def check_growth(rows: list[dict[str, Any]]) -> None:
    assert {row["axis"] for row in rows} == {"pixels", "kernels"}
    for row in rows:
        assert row["per_pixel"] == pytest.approx(row["seconds"]["best"] / row["size"] ** 2, rel=1e-6)
    measured = [row for row in rows if row["axis"] == "pixels"]
    assert all(row["peak_bytes"] > 0 for row in measured)
    assert len(growth.cases(QUICK)) == len(rows)


def test_bad_arguments_are_one_line(tmp_path: Path, run: Run) -> None:
    (tmp_path / "file").write_text("")
    for options, message in (
        (("shares", "--device", "sofa"), "--device sofa: give cpu or cuda"),
        (("shares", "--quick", "--denoiser", "nothing"), "denoiser 'nothing'"),
        (("operators", "--quick", "--out", str(tmp_path / "file")), f"--out {tmp_path / 'file'}: "),
    ):
        code, _, err = run("bench", *options)
        assert (code, len(err.splitlines())) == (2, 1)
        assert message in err


def test_the_command_line_knows_every_benchmark(run: Run) -> None:
    code, out, _ = run("bench", "--help")
    assert code == 0
    assert all(name in out for name in (*commands.BENCHMARKS, "all"))
    assert "--quick" in run("bench", "all", "--help")[1]


def test_all_runs_every_benchmark(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"a": lambda row: str(row["a"]), "twice": lambda row: str(2 * row["a"])}
    for name in commands.BENCHMARKS:
        result = report.Report(name, "title", columns, [{"a": 21}], {}, ["careful"])
        monkeypatch.setattr(f"pnpladmm.workshop.bench.{name}.run", lambda options, result=result: result)
    code, out, _ = run("bench", "all", "--out", str(tmp_path / "new" / "folder"))
    assert code == 0
    assert out.count("note: careful") == len(commands.BENCHMARKS)
    assert "42" in out
    for name in commands.BENCHMARKS:
        found = json.loads((tmp_path / "new" / "folder" / f"{name}-cpu.json").read_text())
        assert found["rows"] == [{"a": 21}]


def test_the_photograph_is_real_and_of_the_size_asked_for() -> None:
    picture = inputs.photograph((480, 640), torch.device("cpu"))
    assert picture.shape == (1, 3, 480, 640)
    assert picture.dtype == torch.float32
    assert 0 <= float(picture.min()) < 0.05
    assert 0.9 < float(picture.max()) <= 1
    # Neighbours are alike, as in photographs; noise would give a ratio near 2.
    step = (picture[..., 1:] - picture[..., :-1]).var()
    assert float(step) < 0.2 * float(picture.var())
