"""Training of gradient steps: the curvature is kept below its bound, and no kill loses a step."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import pnpladmm as pl
from conftest import Run
from gradient_step_cases import SIGMA, network, pictures
from pnpladmm.denoisers.building import read_network
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.loading import load_network
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training import evaluate, points
from pnpladmm.workshop.training.checkpoint import checkpoint_path, write_weights
from pnpladmm.workshop.training.gradient_step import GradientStepTraining
from pnpladmm.workshop.training.loop import Training, train
from pnpladmm.workshop.training.plan import Penalty, Plan

PNPLADMM = [sys.executable, "-c", "from pnpladmm.cli import main; main()"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i in range(3):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 5, 3), dtype=np.uint8))
        coarse.resize((40 + 8 * i, 48), Image.Resampling.BICUBIC).save(path / f"{i}.png")
    return path


def make_plan(folder: Path, out: Path, penalty: dict[str, Any] | None = None, **changes: object) -> Plan:
    tiny = Plan(
        data=folder, out=out, network="prox-drunet", channels=1, steps=60, batch=4, crop=16, widths=(8, 8, 8),
        blocks=1, warmup_steps=5, log_steps=10, checkpoint_seconds=0.0, learning_rate=5e-3,
        penalty=replace(Penalty(points=4, side=16, every=2, begin=0.0), **(penalty or {})),
    )  # fmt: skip
    return replace(tiny, **changes)  # type: ignore[arg-type]


def test_a_training_lowers_the_loss_and_leaves_weights_and_a_card(folder: Path, tmp_path: Path) -> None:
    seen = []
    card = train(make_plan(folder, tmp_path / "w.safetensors", steps=200, validation=folder), seen.append)
    assert sum(p.loss for p in seen[-3:]) < 0.7 * sum(p.loss for p in seen[:3])
    assert "lambda in the pool" in str(seen[0])
    assert "in pictures 5:" in str(seen[-1])
    assert "with little noise" not in str(seen[-1])
    assert set(card["psnr"]) == {"5", "15", "25", "50"}
    assert card["penalty"]["margin"] == 0.05
    assert "growth" not in card["penalty"]
    assert card["relaxation"] == 1
    assert json.loads((tmp_path / "w.json").read_text()) == card
    assert isinstance(pl.load_denoiser(tmp_path / "w.safetensors"), GradientStepDenoiser)


def test_the_penalty_pushes_the_largest_eigenvalue_below_its_bound(folder: Path, tmp_path: Path) -> None:
    """Started steep, with and without it; measured by many products at points that the pool never held."""
    steep = network(curvature=1.6).float()
    write_weights(tmp_path / "steep.safetensors", steep.state_dict(), {})
    found = {}
    for name, weight in (("without", 0.0), ("with", 30.0)):
        plan = make_plan(
            folder, tmp_path / f"{name}.safetensors", start=tmp_path / "steep.safetensors", steps=50, ema=0.8,
            learning_rate=1e-3,
            penalty={"weight": weight, "side": 40, "every": 1},
        )  # fmt: skip
        train(plan)
        d = load_network(plan.out)
        assert isinstance(d, GradientStepDenoiser)
        rows = evaluate.curvature_table(d, folder, (15.0, 25.0), 1, products=30)
        found[name] = max(row.most for row in rows)
    assert found["without"] > 1.1
    assert found["with"] < 1


@pytest.mark.parametrize(("clip", "limit"), [(1.0, 1.0), (None, 100.0)])
def test_gradients_are_cut_to_the_limit(folder: Path, tmp_path: Path, clip: float | None, limit: float) -> None:
    """100 by default: cut to 1, as for other networks, error and penalty would take turns at one length."""
    training = GradientStepTraining(make_plan(folder, tmp_path / "w.safetensors", penalty={"weight": 3e5}, clip=clip))
    training._advance()
    gradients = [p.grad.flatten() for p in training.network.parameters() if p.grad is not None]
    assert float(torch.cat(gradients).norm()) == pytest.approx(limit, rel=1e-3)


def test_the_gradient_of_the_penalty_is_that_of_the_excess_at_both_ends(folder: Path, tmp_path: Path) -> None:
    """A short step along it lowers the mean excess by as much as the gradient says."""
    write_weights(tmp_path / "start.safetensors", network(curvature=1.6).float().state_dict(), {})
    plan = make_plan(
        folder, tmp_path / "w.safetensors", start=tmp_path / "start.safetensors",
        penalty={"side": 40, "weight": 3.0, "growth": 0.1},
    )  # fmt: skip
    training = GradientStepTraining(plan)
    pool = training.extra
    end, bound = torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.tensor([0.95, 0.1, 0.95, 0.1])
    pool["end"], pool["sigma"] = end, torch.full((4,), 5 / 255)
    points = pool["v"], pool["sigma"]
    training._add_gradients()
    u, inside = pool["u"], pool["inside"]  # no point gives way at its first visit
    assert torch.isfinite(training._last[1]).tolist() == [True, False, True, False]
    assert torch.isfinite(training._last[-1]).tolist() == [False, True, False, True]

    def excess() -> Tensor:
        with torch.no_grad():
            values = end * training._curvature(*points, u, inside)
        return (values - bound).clamp_min(0).log1p().double()

    before = excess()
    assert float(before.min()) > 0.1
    pairs = [(p, p.grad) for p in training.network.parameters() if p.grad is not None]
    size = sum(float(gradient.double().square().sum()) for _, gradient in pairs)
    step = 0.002 * 3 * float(before.mean()) / size
    with torch.no_grad():
        for parameter, gradient in pairs:
            parameter -= step * gradient
    assert float((before - excess()).mean()) / (step * size / 3) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(("end", "bound"), [(1.0, 0.95), (-1.0, 0.1)])
def test_points_climb_near_their_bound_and_leave_when_far_below_or_old(
    folder: Path, tmp_path: Path, end: float, bound: float
) -> None:
    training = GradientStepTraining(make_plan(folder, tmp_path / "w.safetensors", penalty={"points": 7, "growth": 0.1}))
    pool = training.extra
    pool["end"] = torch.full((7,), end)
    pool["curvature"] = bound + torch.tensor([0.25, 0.02, -0.45, -0.45, 0.02, 0.25, math.nan])
    pool["visits"] = torch.tensor([9.0, 5.0, 0.0, 1.0, 9.0, 19.0, 0.0])
    before = {key: value.clone() for key, value in pool.items()}
    uphill = 1e-9 * torch.randn(pool["v"].shape, generator=torch.Generator().manual_seed(0))
    training.pool.move_on(pool, torch.ones_like(pool["v"]), uphill)
    climbed = pool["v"] - (before["v"] - 1 if end < 0 else before["v"])  # where `D` takes the lower ones
    moved = climbed.flatten(1).norm(dim=1) / before["sigma"]
    assert moved[0] == 0  # beyond the bound by more than the margin: the worst are not made worse
    torch.testing.assert_close(moved[1:3], torch.full((2,), 2.0), rtol=1e-4, atol=0.0)
    along = torch.nn.functional.cosine_similarity(climbed.flatten(1), uphill.flatten(1))
    torch.testing.assert_close(along[1:3], torch.ones(2), rtol=1e-4, atol=0.0)
    assert pool["visits"].tolist() == [10.0, 6.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert bool((pool["sigma"][5:] != before["sigma"][5:]).all())
    assert bool(torch.isfinite(pool["curvature"]).all())
    torch.testing.assert_close(pool["u"].flatten(1).norm(dim=1), torch.ones(7))


def test_climbing_finds_larger_eigenvalues(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same points, visited seven times by a network that does not learn, with and without the climb."""
    monkeypatch.setattr(points, "CLIMB", 0.2)  # short steps, so that none goes past what it climbs
    write_weights(tmp_path / "start.safetensors", network(curvature=0.4).float().state_dict(), {})
    plan = make_plan(folder, tmp_path / "w.safetensors", start=tmp_path / "start.safetensors", penalty={"side": 40})
    reached = []
    for climbing in (True, False):
        training = GradientStepTraining(plan)
        began = dict(training.extra)
        for _ in range(7):
            training._add_gradients()
            kept = training.extra if climbing else {**began, "u": training.extra["u"]}
            training.extra = {**kept, "visits": began["visits"]}  # so that none gives way
        reached.append(training._last[1])
    assert bool(torch.isfinite(torch.stack(reached)).all())
    assert bool((reached[0] > reached[1]).all())
    assert float((reached[0] - reached[1]).mean()) > 0.005


def test_most_upper_points_have_the_noise_that_the_denoiser_is_told_and_lower_ones_little(tmp_path: Path) -> None:
    """There the error pulls the eigenvalue up: on flat pictures their noise can be measured."""
    grey = tmp_path / "grey"
    grey.mkdir()
    Image.new("RGB", (64, 64), (128, 128, 128)).save(grey / "flat.png")
    plan = make_plan(grey, tmp_path / "w.safetensors", penalty={"points": 400, "side": 32})
    assert bool((GradientStepTraining(plan).extra["end"] > 0).all())  # the lower end is nobody's unless it has a bound
    pool = GradientStepTraining(replace(plan, penalty=replace(plan.penalty, growth=0.0))).extra
    inside = pool["inside"].bool()
    noise = torch.stack([v[kept].std() for v, kept in zip(pool["v"], inside, strict=True)]) / pool["sigma"]
    lower = pool["end"] < 0
    assert int(lower.sum()) == 120
    assert float(noise[lower].max()) < 0.55
    noise = noise[~lower]
    matched = (noise - 1).abs() < 0.12  # of 600 samples or more: within four times its error
    assert 0.65 < float(matched.float().mean()) < 0.85
    assert float(noise.max()) < 2.9
    assert float((noise < 0.5).float().mean()) > 0.05


def test_lower_points_are_smooth(tmp_path: Path) -> None:
    """On a picture that is all detail: neighbours differ less than where crops are taken as they are."""
    rough = tmp_path / "rough"
    rough.mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(rough / "a.png")
    plan = make_plan(rough, tmp_path / "w.safetensors", penalty={"points": 200, "side": 32, "growth": 0.0})
    pool = GradientStepTraining(plan).extra
    differences = pool["v"][..., :24, :24].diff(dim=3).flatten(1).std(dim=1)
    lower = pool["end"] < 0
    assert float(differences[lower].median()) < 0.5 * float(differences[~lower].median())


def test_a_relaxation_belongs_to_the_weights_it_was_found_for(folder: Path, tmp_path: Path) -> None:
    relaxed = network().float()
    relaxed.relaxation.fill_(0.5)
    write_weights(tmp_path / "start.safetensors", relaxed.state_dict(), {})
    plan = make_plan(folder, tmp_path / "w.safetensors", start=tmp_path / "start.safetensors", steps=1)
    assert train(plan)["relaxation"] == 1
    assert float(read_network(plan.out).state_dict()["relaxation"]) == 1


def test_crops_end_where_pictures_do(folder: Path, tmp_path: Path) -> None:
    training = GradientStepTraining(make_plan(folder, tmp_path / "w.safetensors"))
    inside = training.pool.cut(torch.zeros(400, 1, 16, 24))
    heights, widths = inside[:, 0, :, 0].sum(1), inside[:, 0, 0, :].sum(1)
    assert torch.equal(inside.sum((1, 2, 3)), heights * widths)
    assert set(heights.tolist()) == set(range(9, 17))
    assert set(widths.tolist()) == set(range(17, 25))
    assert 0.45 < float((heights == 16).float().mean()) < 0.62
    v, u, kept = (training.extra[key] for key in ("v", "u", "inside"))
    assert torch.equal(v, v * kept)
    assert torch.equal(u, u * kept)


def test_resuming_is_as_if_never_stopped(folder: Path, tmp_path: Path) -> None:
    whole = make_plan(folder, tmp_path / "whole.safetensors", steps=20)
    train(whole)
    torn = GradientStepTraining(replace(whole, out=tmp_path / "torn.safetensors"))
    for _ in range(10):
        torn._advance()
    torn.save()
    assert train(torn.plan)["steps"] == 20
    a, b = (read_network(plan.out).state_dict() for plan in (whole, torn.plan))
    assert all(torch.equal(a[key], b[key]) for key in a)
    fewer = replace(torn.plan.penalty, points=2)
    other = GradientStepTraining(replace(torn.plan, penalty=fewer))  # another pool: begun anew
    assert other.extra["v"].shape[0] == 2
    del torn.extra["end"]
    torn.save()  # as one of an earlier version: its pool cannot be used
    both_ends = replace(torn.plan, penalty=replace(torn.plan.penalty, growth=0.0))
    assert bool((GradientStepTraining(both_ends).extra["end"] < 0).any())
    with pytest.raises(InputError, match="at least 256 pixels"):
        GradientStepTraining(replace(whole, penalty=replace(whole.penalty, side=256)))
    with pytest.raises(InputError, match="holds a prox-drunet"):
        Training(replace(whole, network="light", start=whole.out, out=tmp_path / "l.safetensors"))


def test_killed_and_resumed_it_reaches_the_same_step(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "torn.safetensors"
    options = "--network prox-drunet --channels 1 --steps 60 --batch 4 --crop 16 --widths 8,8,8 --blocks 1"
    options += " --log-steps 5 --warmup-steps 5 --checkpoint-seconds 0 --penalty-crops 4 --penalty-crop 16"
    command = [*PNPLADMM, "train", str(folder), str(out), *options.split()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        deadline = time.monotonic() + 60
        while not checkpoint_path(out).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    assert int(done.stdout.split()[1]) > 5  # it went on, it did not begin again
    card = json.loads(out.with_suffix(".json").read_text())
    assert card["steps"] == 60
    assert math.isfinite(card["final_loss"])


def test_pictures_wait_for_company_only_while_they_are_few_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "BATCH", 2)
    monkeypatch.setattr(evaluate, "LARGE", 1000)
    sizes = [4, 5, 4, 50, 5, 6, 7, 8, 9, 10, 11, 12, 13, 6]
    groups = list(evaluate._same_sizes((torch.zeros(1, 1, n, n), torch.ones(1, 1, n, n)) for n in sizes))
    assert all(clean.shape == noise.shape for clean, noise in groups)
    # A pair, a large one, a pair, eight that were too many, and what is left.
    assert [(len(x), x.shape[-1]) for x, _ in groups] == (
        [(2, 4), (1, 50), (2, 5)] + [(1, n) for n in range(6, 14)] + [(1, 6)]
    )


def test_the_curvature_table_measures_every_picture_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of one size go through the network together, two at most; the noise of each is its own."""
    monkeypatch.setattr(evaluate, "BATCH", 2)
    rng = np.random.default_rng(0)
    for i, shape in enumerate([(16, 24), (24, 16), (16, 24), (16, 24), (24, 16)]):
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(tmp_path / f"{i}.png")
    d = GradientStepDenoiser({1: network()}, precision=torch.float64)
    alone = []
    for i in range(5):
        clean = torch.as_tensor(np.asarray(Image.open(tmp_path / f"{i}.png")) / np.float32(255))[None, None]
        noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(i))
        alone.append(float(d.curvature(clean + 15 / 255 * noise, 15 / 255, 8)))
    (row,) = evaluate.curvature_table(d, tmp_path, (15.0,), 1, products=8)
    assert (row.pictures, row.over) == (5, sum(value >= 1 for value in alone))
    torch.testing.assert_close([row.most, row.mean], [max(alone), sum(alone) / 5], rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(
    "change", [{"weight": -1.0}, {"margin": 1.0}, {"side": 20}, {"every": 0}, {"growth": -0.1}, {"points": 0}]
)
def test_settings_that_cannot_be_trained_with_are_refused(change: dict[str, float]) -> None:
    ((name, value),) = change.items()
    with pytest.raises(InputError, match=f"penalty.{name} = {value}: give"):
        Penalty(**change)  # type: ignore[arg-type]


def test_the_curvature_table(folder: Path, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, network(3, curvature=0.5).state_dict(), {"network": "prox-drunet"})
    options = ["--sigmas", "15", "--products", "8", "--limit", "2", "--card", "--table", "curvature"]

    def measure(*options: str) -> float:
        code, out, err = run("train", "evaluate", str(path), str(folder), *options)
        assert (code, err) == (0, "")
        return float(out.splitlines()[2].split("|")[2])

    before = measure(*options)
    after = measure(*options, "--relaxation", "0.5")
    assert after == pytest.approx(before / 2, rel=0.01)
    card = json.loads((tmp_path / "w.json").read_text())
    assert card["relaxation"] == 0.5
    assert card["lambda_max"]["15"] == pytest.approx(after, abs=1e-3)
    d = pl.load_denoiser(path)
    assert isinstance(d, GradientStepDenoiser)
    assert d.relaxation == 0.5
    growth = measure(*["--table", "growth", "--sigmas", "5", "--products", "8", "--card"])
    grown = [float(d.growth(evaluate.read_tensor(file, 3), 5 / 255, 8)) for file in sorted(folder.iterdir())]
    assert growth == pytest.approx(max(grown), abs=1e-4)
    assert max(grown) > 0.01
    assert json.loads((tmp_path / "w.json").read_text())["growth"]["5"] == pytest.approx(max(grown), abs=1e-4)
    code, _, err = run("train", "evaluate", "light", str(folder), "--table", "curvature")
    assert code == 2
    assert "no gradient step" in err


# --- on a GPU ----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_agrees_with_the_cpu_in_float32(folder: Path, tmp_path: Path) -> None:
    net = network(3).float()
    v = pictures(3, 40, batch=2).float()
    cpu = GradientStepDenoiser({3: net})
    expected, energy, curvature = cpu(v, SIGMA), cpu.energy(v, SIGMA), cpu.curvature(v, SIGMA)
    write_weights(tmp_path / "w.safetensors", net.state_dict(), {})
    gpu = GradientStepDenoiser({3: net}, device="cuda")
    w = v.cuda()
    # TF32 would be off by 1e-3 of the noise.
    torch.testing.assert_close(gpu(w, SIGMA).cpu(), expected, rtol=0, atol=1e-5 * SIGMA)
    torch.testing.assert_close(gpu.energy(w, SIGMA).cpu(), energy, rtol=1e-5, atol=0)
    torch.testing.assert_close(gpu.curvature(w, SIGMA).cpu(), curvature, rtol=1e-4, atol=0)
    assert torch.equal(gpu(w, SIGMA), gpu(w, SIGMA))
    plan = make_plan(folder, tmp_path / "t.safetensors", device="cuda", precision="bfloat16", steps=6)
    assert math.isfinite(train(plan)["final_loss"])
