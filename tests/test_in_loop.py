"""Training in the loop: what it restores and learns, a kill and a resumption, the weights it leaves."""

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

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import Run
from pnpladmm.denoisers import Promise, load_denoiser, promise_of
from pnpladmm.denoisers.building import new_network, read_network
from pnpladmm.denoisers.network import NetworkDenoiser
from pnpladmm.denoisers.shipped import weight_file
from pnpladmm.solvers import Annealed, make_method, solve
from pnpladmm.solvers.settings import NOISE_LEVELS, at_noise
from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.checkpoint import checkpoint_path, write_weights
from pnpladmm.workshop.training.in_loop import InLoopTraining, train_in_loop
from pnpladmm.workshop.training.in_loop_plan import InLoopPlan
from pnpladmm.workshop.training.loop import Progress
from pnpladmm.workshop.training.method_schedule import LEVELS, MethodSchedule
from pnpladmm.workshop.training.schedule_search import search_schedule, write_schedule

PNPLADMM = [sys.executable, "-c", "from pnpladmm.cli import main; main()"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three small smooth pictures with some edges."""
    path = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i in range(3):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 5, 3), dtype=np.uint8))
        kind = Image.Resampling.NEAREST if i else Image.Resampling.BICUBIC
        coarse.resize((64, 56), kind).save(path / f"{i}.png")
    return path


def plan_of(folder: Path, out: Path, **changes: object) -> InLoopPlan:
    """A training of seconds: a network of 8 channels, scenes of 32x32, 3 calls or 2."""
    tiny = InLoopPlan(
        data=folder, out=out, steps=8, batch=2, crop=32, calls=(3, 2), widths=(8, 8, 8), blocks=1, warmup_steps=2,
        kernels=60, blurs=3, log_steps=2, checkpoint_seconds=0.0, grey=0.3,
    )  # fmt: skip
    return replace(tiny, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("grey", [False, True])
def test_the_loop_in_training_is_the_shipped_loop(folder: Path, tmp_path: Path, grey: bool) -> None:
    training = InLoopTraining(plan_of(folder, tmp_path / "w.safetensors", crop=48))
    for number in range(3):
        scene = training.scene(training.pool.source.pair(0, number), 10.0, grey)
        with torch.no_grad():
            ours = training.restored(scene, 3)
        row = at_noise({float(level): values for level, values in training.schedules[3].rows().items()}, 10.0)
        numbers = {key: value / 255 if key in NOISE_LEVELS else value for key, value in row.items()}
        denoiser = NetworkDenoiser({3: training.network}, precision=torch.float32)
        method = Annealed.from_settings(denoiser, scene.problem, numbers, 3)
        shipped = solve(scene.problem, method, tolerance=0).image
        torch.testing.assert_close(ours, shipped, rtol=0, atol=2e-5)
        for parameter in training.network.parameters():
            parameter.requires_grad_()


def test_a_training_learns_and_leaves_weights_with_their_settings(folder: Path, tmp_path: Path) -> None:
    plan = plan_of(folder, tmp_path / "w.safetensors", steps=40, learning_rate=3e-3, schedule_rate=1e-2)
    training = InLoopTraining(plan)
    scenes = [training.scene(training.pool.source.pair(9, n), 12.0, False) for n in range(3)]

    def mean_loss() -> float:
        with torch.no_grad():
            return sum(float(training.loss_on(scene, 3)) for scene in scenes) / len(scenes)

    before = mean_loss()
    seen: list[Progress] = []
    card = training.run(seen.append)
    assert mean_loss() < before - 0.3
    assert "at noise 10: sigma_d" in str(seen[-1])
    assert card["steps"] == 40
    assert set(card["settings"]) == {"fast-3", "fast-2"}
    assert card["settings"]["fast-2"] == training.schedules[2].rows() != MethodSchedule("light", 2).rows()
    assert card["settings"]["fast-3"] == training.schedules[3].rows() != MethodSchedule("light", 3).rows()
    stored = json.loads(read_tensors(plan.out)[1]["card"])
    assert stored == json.loads((tmp_path / "w.json").read_text()) == card
    assert str(tmp_path) not in json.dumps(card)
    # A training that starts from these weights goes on with their schedule.
    follower = InLoopTraining(plan_of(folder, tmp_path / "v.safetensors", start=plan.out))
    assert follower.schedules[3].rows() == training.schedules[3].rows()


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_half_precision_has_the_gradients_of_float32(folder: Path, tmp_path: Path, precision: str) -> None:
    found = []
    for kind in ("float32", precision):
        torch.manual_seed(0)
        training = InLoopTraining(plan_of(folder, tmp_path / "w.safetensors", precision=kind, steps=1, clip=1e9))
        training.schedule_optimizer.step = lambda: None  # type: ignore[method-assign, assignment]
        training.schedule_optimizer.zero_grad = lambda **_: None  # type: ignore[method-assign]
        training._advance()
        assert training.schedules[3].logs.grad is not None
        weights = torch.cat([p.grad.flatten() for p in training.network.parameters() if p.grad is not None])
        found.append((weights.double(), training.schedules[3].logs.grad))
    for exact, half in zip(*found, strict=True):
        assert float((half - exact).norm()) < 0.2 * float(exact.norm())


def test_trained_weights_are_used_with_their_schedule(folder: Path, tmp_path: Path) -> None:
    training = InLoopTraining(plan_of(folder, tmp_path / "w.safetensors"))
    with torch.no_grad():
        training.schedules[3].logs += 0.1
    training.save()
    denoiser = load_denoiser(training.plan.out)
    assert promise_of(denoiser) is Promise.NONE
    problem = training.scene(training.pool.at(0), 10.0, False).problem
    sigma = torch.tensor([3.0, 10.0], dtype=torch.float64) / 255
    method = make_method("fast", denoiser, problem, sigma, calls=3)
    for place, noise in enumerate((3.0, 10.0)):
        for name, value in training.schedules[3].at(noise).items():
            assert float(getattr(method, name)[place]) == pytest.approx(
                float(torch.as_tensor(value).detach()), rel=1e-4
            ), name


def test_resuming_is_as_if_never_stopped(folder: Path, tmp_path: Path) -> None:
    whole = plan_of(folder, tmp_path / "whole.safetensors")
    card = train_in_loop(whole)
    torn = InLoopTraining(replace(whole, out=tmp_path / "torn.safetensors"))
    for _ in range(4):
        torn._advance()
    torn.save()
    resumed = train_in_loop(torn.plan)
    assert resumed["steps"] == 8
    assert resumed["settings"] == card["settings"]
    a, b = (read_network(path).state_dict() for path in (whole.out, torn.plan.out))
    assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.slow
def test_killed_and_resumed_it_reaches_the_same_weights(folder: Path, tmp_path: Path) -> None:
    first = tmp_path / "first.safetensors"
    write_weights(first, new_network("light", 3, (8, 8, 8), 1).state_dict(), {})

    def command(out: Path) -> list[str]:
        options = f"--start {first} --steps 16 --batch 2 --crop 32 --calls 2 --log-steps 2 --kernels 60 --blurs 3"
        options += " --warmup-steps 2 --checkpoint-seconds 0"
        return [*PNPLADMM, "train", "in-loop", str(folder), str(out), *options.split()]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole, torn = tmp_path / "whole.safetensors", tmp_path / "torn.safetensors"
    undisturbed = subprocess.Popen(command(whole), stdout=subprocess.DEVNULL, env=environment)
    with subprocess.Popen(command(torn), stdout=subprocess.DEVNULL, env=environment) as process:
        deadline = time.monotonic() + 120
        while not checkpoint_path(torn).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    killed_at = json.loads(read_tensors(checkpoint_path(torn))[1]["numbers"])["step"]
    assert 2 <= killed_at < 16
    done = subprocess.run(command(torn), check=True, env=environment, capture_output=True, text=True)
    assert int(done.stdout.split()[1]) > killed_at  # it went on, it did not begin again
    assert undisturbed.wait(timeout=120) == 0
    a, b = (read_network(path).state_dict() for path in (whole, torn))
    assert all(torch.allclose(a[key], b[key], atol=2e-3) for key in a)


@pytest.mark.parametrize("broken", [1, 2])
def test_pictures_that_overflow_change_no_weight(folder: Path, tmp_path: Path, broken: int) -> None:
    training = InLoopTraining(plan_of(folder, tmp_path / "w.safetensors"))
    scene = training.scene(training.pool.at(0), 10.0, False)
    scene.clean[:broken] = math.nan
    training._loss_of_step = lambda: training.loss_on(scene, 3)  # type: ignore[method-assign]
    good = [parameter.detach().clone() for parameter in training.network.parameters()]
    schedule = training.schedules[3].rows()
    loss = float(training._advance())
    assert math.isfinite(loss) == (broken < 2)  # without any good picture it is for `run` to roll back
    assert training.schedules[3].rows() == schedule
    # Only the weight decay moves them. Weights of units that are 0 all over the broken picture learn from the other.
    moved = total = 0
    for before, after in zip(good, training.network.parameters(), strict=True):
        assert bool(after.isfinite().all())
        moved += int(((after.detach() - before).abs() > 1e-6 * before.abs()).sum())
        total += before.numel()
    assert moved <= (0.01 * total if broken < 2 else 0)


def test_hostile_and_foreign_files_are_refused(folder: Path, tmp_path: Path) -> None:
    plan = plan_of(folder, tmp_path / "w.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"\x80\x04cos\nsystem\n(S'touch owned'\ntR.")
    with pytest.raises(InputError, match="not a safetensors file"):
        InLoopTraining(replace(plan, start=tmp_path / "bad.safetensors"))
    training = InLoopTraining(plan)
    state = training.network.state_dict()
    for wrong in ({"1": {}}, {"1": {"sigma_d": "x"}}, [], {f"{n:g}": {"sigma_d": -1} for n in LEVELS}):
        write_weights(tmp_path / "odd.safetensors", state, {"settings": {"fast-3": wrong}})
        with pytest.raises(InputError, match=r"odd.safetensors: its card holds no schedule"):
            InLoopTraining(replace(plan, start=tmp_path / "odd.safetensors"))
    for odd in (["a"], "text", {"settings": "text"}):
        write_weights(tmp_path / "odd.safetensors", state, odd)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"odd.safetensors: its card"):
            InLoopTraining(replace(plan, start=tmp_path / "odd.safetensors"))
    training.save()
    write_weights(checkpoint_path(plan.out), state, {})
    with pytest.raises(InputError, match="checkpoint"):
        InLoopTraining(plan)


def test_the_schedule_begins_with_the_settings_of_the_network_unless_others_are_named(
    folder: Path, tmp_path: Path
) -> None:
    shipped = {name: MethodSchedule(name, 3).rows() for name in ("light", "drunet")}
    assert shipped["light"] != shipped["drunet"]
    for named, begun in ((None, "drunet"), ("light", "light")):
        plan = plan_of(folder, tmp_path / "w.safetensors", network="drunet", widths=(8, 8, 8, 8), settings_of=named)
        assert InLoopTraining(plan).schedules[3].rows() == shipped[begun]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"calls": (1,)}, "calls = 1: give different numbers of at least 2"),
        ({"calls": (4, 4)}, "calls = 4,4: give different numbers"),
        ({"grey": 1.5}, "grey = 1.5"),
        ({"blurs": 0}, "blurs = 0"),
        ({"schedule_rate": -1.0}, "schedule_rate"),
        ({"network": "prox-drunet"}, "would lose its theorem"),
        ({"channels": 1}, "channels = 1: give 3"),
        ({"steps": None}, "never end"),
    ],
)
def test_settings_that_cannot_be_trained_with_are_refused(
    folder: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plan_of(folder, tmp_path / "w.safetensors", **change)


def test_the_command_trains_and_refuses_in_one_line(folder: Path, tmp_path: Path, run: Run) -> None:
    write_weights(tmp_path / "first.safetensors", new_network("light", 3, (8, 8, 8), 1).state_dict(), {})
    given = ["in-loop", str(folder), "w.safetensors", "--start", "first.safetensors", "--steps", "1", "--crop", "32"]
    given += ["--batch", "2", "--calls", "2", "--kernels", "20"]
    code, out, _ = run("train", *given)
    assert code == 0
    assert out.startswith("step 1  ")
    card = json.loads((tmp_path / "w.json").read_text())
    assert card["started_from"] == "first.safetensors"
    assert set(card["settings"]) == {"fast-2"}
    for wrong, message in (
        ((*given, "--network", "prox-drunet"), "network = prox-drunet: "),
        ((*given, "--calls", "1"), "calls = 1: give different numbers of at least 2"),
        ((*given, "--calls", "two"), "--calls two: give whole numbers"),
        ((*given, "--start", "nothing.safetensors"), "nothing.safetensors: no such file"),
        ((*given, "--settings-of", "nobody", "--fresh", "--grey", "2"), "grey = 2.0: "),
    ):
        code, out, err = run("train", *wrong)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert message in err


def test_validation_is_of_the_shipped_method(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8))
    coarse.resize((260, 256), Image.Resampling.BICUBIC).save(tmp_path / "a.png")
    plan = plan_of(
        tmp_path, tmp_path / "out" / "w.safetensors", validation=tmp_path, steps=1, start=weight_file("light")
    )
    card = train_in_loop(plan)
    assert list(card["psnr"]) == [f"{noise} ({calls} calls)" for calls in (3, 2) for noise in (1, 10, 20, 40)]
    assert 15 < card["psnr"]["40 (3 calls)"] < card["psnr"]["1 (3 calls)"] < 60
    assert "1 pictures" in card["psnr_on"]


def test_problems_of_the_blurs_are_solved_on_their_own_domain(folder: Path, tmp_path: Path) -> None:
    training = InLoopTraining(plan_of(folder, tmp_path / "w.safetensors", crop=48))
    shapes = set()
    for number in range(8):
        blur = training.pool.source.pair(0, number)
        scene = training.scene(blur, 5.0, False)
        shapes.add(scene.problem.observed.shape[-1] - scene.clean.shape[-1])
        assert math.isfinite(float(training.loss_on(scene, 3).detach()))
    assert 0 in shapes
    assert min(shapes) < 0  # unknown borders: the scene is larger than what is observed


def test_a_search_finds_settings_that_restore_better(folder: Path, tmp_path: Path, run: Run) -> None:
    """From settings that are far off, on the loss and with the steps that the shipped method has."""
    first = tmp_path / "w.safetensors"
    far = MethodSchedule("light", 3)
    with torch.no_grad():
        far.logs[:, 0] += 1.0  # sigma_d, the last noise level
    write_weights(first, new_network("light", 3, (8, 8, 8), 1).state_dict(), {"settings": {"fast-3": far.rows()}})
    plan = plan_of(folder, tmp_path / "v.safetensors", start=first, calls=(3,))
    lines: list[str] = []
    write_schedule(first, search_schedule(plan, 4, lines.append), photo=False)
    losses = [[float(number) for number in line.split("loss ")[1].split(" -> ")] for line in lines]
    assert len(losses) == len(LEVELS)
    assert all(after <= before for before, after in losses)
    assert sum(after < before - 1e-3 for before, after in losses) >= 4
    card = json.loads(read_tensors(first)[1]["card"])
    assert card["settings"]["fast-3"] != far.rows()
    assert InLoopTraining(plan).schedules[3].rows() == card["settings"]["fast-3"]
    assert run("train", "schedule", str(folder), "w.safetensors", "--trials", "0") == (
        2, "", "pnpladmm: trials = 0: give at least 1\n",
    )  # fmt: skip


def test_a_training_can_start_from_settings_with_other_noise_levels(folder: Path, tmp_path: Path) -> None:
    """Those that were tuned have fewer levels, and no tilt."""
    training = InLoopTraining(plan_of(folder, tmp_path / "w.safetensors", network="light", start=None))
    row = {"sigma_d": 10.0, "mu": 0.2, "sigma_start": 60.0, "bend": 1.0, "extrapolation": 0.0}
    settings = {"fast-3": {"10": row, "40": {**row, "sigma_d": 40.0}}}
    write_weights(tmp_path / "few.safetensors", training.network.state_dict(), {"settings": settings})
    follower = InLoopTraining(plan_of(folder, tmp_path / "v.safetensors", start=tmp_path / "few.safetensors"))
    rows = follower.schedules[3].rows()
    assert rows["20"]["sigma_d"] == pytest.approx(20.0)
    assert rows["3"]["sigma_d"] == pytest.approx(3.0)
    assert rows["20"]["tilt"] == 1.0
