"""The benchmarks: that clocks are read right, and that spans, calls and memory are those of the case.

Nothing here looks at how fast anything is: CI machines are shared.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench_cases import CPU, clock, tiny_drunet
from pnpladmm.denoisers import load_denoiser
from pnpladmm.solvers import ADMM, Annealed
from pnpladmm.workshop.bench import (
    inputs,
    instruments,
    memory,
    timing,
)
from pnpladmm.workshop.bench.instruments import BLUR, DENOISER, PRECONDITIONER, Spans
from pnpladmm.workshop.bench.pieces import groups_of_cores, run_in_pieces


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


def test_the_photograph_is_real_and_of_the_size_asked_for() -> None:
    picture = inputs.photograph((480, 640), torch.device("cpu"))
    assert picture.shape == (1, 3, 480, 640)
    assert picture.dtype == torch.float32
    assert 0 <= float(picture.min()) < 0.05
    assert 0.9 < float(picture.max()) <= 1
    # Neighbours are alike, as in photographs; noise would give a ratio near 2.
    step = (picture[..., 1:] - picture[..., :-1]).var()
    assert float(step) < 0.2 * float(picture.var())


def test_a_run_that_was_stopped_counts_all_its_pieces(tmp_path: Path) -> None:
    np.save(tmp_path / "psf.npy", np.ones((3, 3)) / 9)
    jobs = []
    for number in range(2):
        np.save(tmp_path / f"in-{number}.npy", np.full((24, 24), 100, np.uint8))
        names = {"picture": f"in-{number}.npy", "blur": "psf.npy", "output": f"out-{number}.npy"}
        jobs.append(
            {name: str(tmp_path / path) for name, path in names.items()} | {"noise": 10.0, "method": "richardson-lucy"}
        )
    before = {"seconds": 1000.0, "core_seconds": 2000.0, "peak_bytes": 10**15}
    (tmp_path / "piece-0.json").write_text(json.dumps(before))
    found = run_in_pieces(tmp_path, {"jobs": jobs, "runs": 1}, groups_of_cores(1)[0], 1)
    assert found["pieces"] == 2
    assert 1000 < found["seconds"] < 1100
    assert 2000 < found["core_seconds"] < 2100
    assert found["peak_bytes"] == 10**15
    assert all(Path(job["output"]).is_file() for job in jobs)


def test_cores_are_divided_into_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3, 7}, raising=False)
    monkeypatch.setattr("pnpladmm.workshop.bench.pieces.SIBLINGS", "/nowhere/{}")
    assert groups_of_cores(2) == [(0, 1), (2, 3)]
    assert groups_of_cores(9) == [None]
