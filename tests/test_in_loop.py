"""Training in the loop: its blurs, its schedule, what it learns, a kill and a resumption."""

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
from pnpladmm.data_terms import Gaussian
from pnpladmm.denoisers import Promise, load_denoiser, promise_of
from pnpladmm.denoisers.building import new_network, read_network
from pnpladmm.denoisers.network import NetworkDenoiser
from pnpladmm.denoisers.shipped import weight_file
from pnpladmm.operators import Mask, check_adjoint
from pnpladmm.solvers import Annealed, Problem, make_method, solve
from pnpladmm.solvers.settings import NOISE_LEVELS, at_noise, shipped_settings
from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.checkpoint import checkpoint_path, write_weights
from pnpladmm.workshop.training.in_loop import InLoopTraining, draw_noise, train_in_loop
from pnpladmm.workshop.training.in_loop_plan import InLoopPlan
from pnpladmm.workshop.training.loop import Progress
from pnpladmm.workshop.training.method_schedule import LEVELS, MethodSchedule
from pnpladmm.workshop.training.random_blurs import BlurPool, BlurSource
from pnpladmm.workshop.training.random_kernels import KINDS, LARGEST, SIDE, KernelBank

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


@pytest.fixture(scope="module")
def bank() -> KernelBank:
    return KernelBank.drawn(160, torch.Generator().manual_seed(0))


def plan_of(folder: Path, out: Path, **changes: object) -> InLoopPlan:
    """A training of seconds: a network of 8 channels, scenes of 32x32, 3 calls."""
    tiny = InLoopPlan(
        data=folder, out=out, steps=8, batch=2, crop=32, calls=3, widths=(8, 8, 8), blocks=1, warmup_steps=2,
        kernels=60, blurs=3, log_steps=2, checkpoint_seconds=0.0, grey=0.3,
    )  # fmt: skip
    return replace(tiny, **changes)  # type: ignore[arg-type]


def test_kernels_are_light_of_their_own_reach(bank: KernelBank) -> None:
    kernels, reaches = bank.kernels, bank.reaches
    assert kernels.shape[1:] == (SIDE, SIDE)
    assert abs(len(kernels) - 160) <= len(KINDS)
    assert bool((kernels >= 0).all())
    torch.testing.assert_close(kernels.sum((1, 2)), torch.ones(len(kernels)))
    assert bool((reaches.diff() >= 0).all())
    axis = (torch.arange(SIDE) - LARGEST).abs()
    outside = torch.maximum(axis[:, None], axis[None, :]) > reaches.view(-1, 1, 1)
    assert not bool((kernels * outside).any())
    assert bank.count_up_to(LARGEST) == len(kernels)
    assert int(reaches[: bank.count_up_to(8)].max()) <= 8 < int(reaches[bank.count_up_to(8)])
    # In the middle: what a kernel moved, the network would have to move back.
    for make, _ in KINDS[:1] + KINDS[2:7]:
        drawn = make(torch.full((20,), 12.0), torch.Generator().manual_seed(1))
        drawn = drawn / drawn.sum((1, 2), keepdim=True)
        place = torch.arange(SIDE) - float(LARGEST)
        assert float((drawn * place).sum((1, 2)).abs().max()) < 0.6
        assert float((drawn * place[:, None]).sum((1, 2)).abs().max()) < 0.6


def test_blurs_of_all_kinds_have_exact_adjoints_and_weights_of_sum_one(bank: KernelBank) -> None:
    seen = set()
    source = BlurSource(bank, 3, 48, torch.device("cpu"))
    for number in range(24):
        blur = source.blur(5, number)
        seen.add((blur.boundary, blur.order))
        assert 40 < blur.scene[0] <= 48
        assert check_adjoint(blur, (3, 1, *blur.scene)) < 1e-10
        torch.testing.assert_close(blur.weights.sum(1), torch.ones_like(blur.weights[:, 0]))
        torch.testing.assert_close(blur.kernels.sum((-2, -1)), torch.ones_like(blur.kernels[..., 0, 0]))
        assert bool((blur.weights >= 0).all())
    assert len(seen) == 4
    counts = [int(n) for i in range(24) for n in source.blur(5, i).weights.flatten(2).any(-1).sum(1)]
    assert {1, 2, 3} <= set(counts)
    assert max(counts) <= 8
    with pytest.raises(InputError, match="crop = 16: give at least 24"):
        BlurSource(bank, 3, 16, torch.device("cpu"))


def test_a_step_gets_the_blur_that_seed_and_step_say(bank: KernelBank) -> None:
    source = BlurSource(bank, 2, 32, torch.device("cpu"))
    first, second = BlurPool(source, 0, 4, 2), BlurPool(source, 0, 4, 2)
    for step in range(6):
        first.at(step)
    torch.testing.assert_close(first.at(9).weights, second.at(9).weights, rtol=0, atol=0)
    torch.testing.assert_close(first.at(9).kernels, second.at(9).kernels, rtol=0, atol=0)
    assert first.at(9) is first.at(9)
    assert len(first._made) <= 4
    assert draw_noise(0, 3) == draw_noise(0, 3) != draw_noise(0, 4)
    levels = [draw_noise(1, step) for step in range(500)]
    assert 0.5 <= min(levels) < 1
    assert 50 < max(levels) <= 60


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0, 10.0, 14.0, 40.0, 60.0])
def test_the_schedule_is_what_the_settings_would_say(noise: float) -> None:
    schedule = MethodSchedule("light", 8)
    with torch.no_grad():
        schedule.logs.add_(torch.linspace(-0.1, 0.2, schedule.logs.numel(), dtype=torch.float64).view_as(schedule.logs))
    row = schedule.at(noise)
    wanted = at_noise({float(level): values for level, values in schedule.rows().items()}, noise)
    assert set(row) == set(wanted)
    for key, value in wanted.items():
        unit = 255 if key in NOISE_LEVELS else 1
        assert float(torch.as_tensor(row[key]).detach()) * unit == pytest.approx(value, rel=1e-4, abs=1e-12)
    again = MethodSchedule("light", 8)
    again.load(schedule.rows(), "weights")
    torch.testing.assert_close(again.logs, schedule.logs, rtol=0, atol=1e-4)


def test_the_schedule_begins_as_shipped() -> None:
    rows = MethodSchedule("light", 8).rows()
    shipped = shipped_settings()["light"]["fast-8"]
    for level in (1.0, 10.0, 20.0, 40.0):
        for key, value in shipped[level].items():
            assert rows[f"{level:g}"][key] == pytest.approx(value, rel=1e-4)
    assert {row["tilt"] for row in rows.values()} == {1.0}
    assert [float(level) for level in rows] == list(LEVELS)


@pytest.mark.parametrize("grey", [False, True])
def test_the_loop_in_training_is_the_shipped_loop(folder: Path, tmp_path: Path, grey: bool) -> None:
    training = InLoopTraining(plan_of(folder, tmp_path / "w.safetensors", crop=48))
    for number in range(3):
        scene = training.scene(training.pool.source.blur(0, number), 10.0, grey)
        with torch.no_grad():
            ours = training.restored(scene)
        row = at_noise({float(level): values for level, values in training.schedule.rows().items()}, 10.0)
        numbers = {key: value / 255 if key in NOISE_LEVELS else value for key, value in row.items()}
        denoiser = NetworkDenoiser({3: training.network}, precision=torch.float32)
        method = Annealed.from_settings(denoiser, scene.problem, numbers, 3)
        shipped = solve(scene.problem, method, tolerance=0).image
        torch.testing.assert_close(ours, shipped, rtol=0, atol=2e-5)
        for parameter in training.network.parameters():
            parameter.requires_grad_()


def test_a_training_learns_and_leaves_weights_with_their_settings(folder: Path, tmp_path: Path) -> None:
    plan = plan_of(folder, tmp_path / "w.safetensors", steps=60, learning_rate=3e-3, schedule_rate=1e-2)
    training = InLoopTraining(plan)
    scenes = [training.scene(training.pool.source.blur(9, n), 12.0, False) for n in range(3)]

    def mean_loss() -> float:
        with torch.no_grad():
            return sum(float(training.loss_on(scene)) for scene in scenes) / len(scenes)

    before = mean_loss()
    seen: list[Progress] = []
    card = training.run(seen.append)
    assert mean_loss() < before - 0.3
    assert "at noise 10: sigma_d" in str(seen[-1])
    assert card["steps"] == 60
    assert set(card["settings"]) == {"fast-3"}
    assert card["settings"]["fast-3"] == training.schedule.rows() != MethodSchedule("light", 3).rows()
    stored = json.loads(read_tensors(plan.out)[1]["card"])
    assert stored == json.loads((tmp_path / "w.json").read_text()) == card
    assert str(tmp_path) not in json.dumps(card)
    # A training that starts from these weights goes on with their schedule.
    follower = InLoopTraining(plan_of(folder, tmp_path / "v.safetensors", start=plan.out))
    assert follower.schedule.rows() == training.schedule.rows()


def test_trained_weights_are_used_with_their_schedule(folder: Path, tmp_path: Path) -> None:
    training = InLoopTraining(plan_of(folder, tmp_path / "w.safetensors"))
    with torch.no_grad():
        training.schedule.logs += 0.1
    training.save()
    denoiser = load_denoiser(training.plan.out)
    assert promise_of(denoiser) is Promise.NONE
    problem = training.scene(training.pool.at(0), 10.0, False).problem
    sigma = torch.tensor([3.0, 10.0], dtype=torch.float64) / 255
    method = make_method("fast", denoiser, problem, sigma, calls=3)
    for place, noise in enumerate((3.0, 10.0)):
        for name, value in training.schedule.at(noise).items():
            assert float(getattr(method, name)[place]) == pytest.approx(
                float(torch.as_tensor(value).detach()), rel=1e-4
            ), name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fast-3": {"1": {"sigma_d": "x"}}}, "its card holds settings that cannot be read"),
        ({"fast-3": [1]}, "its card holds settings that cannot be read"),
        ("text", "its card holds settings that cannot be read"),
        ({"fast-3": {"nan": {"sigma_d": 1}}}, "the fast-3 settings in its card are not finite"),
        ({"fast-3": {"-1": {"sigma_d": 1}}}, "the fast-3 settings in its card are not finite"),
        ({"fast-3": {"1": {"sigma_d": math.inf}}}, "the fast-3 settings in its card are not finite"),
        ({"fast-3": {"1": {"sigma_d": 1, "odd": 2}}}, "odd is no parameter of it"),
        ({"fast-3": {"1": {"mu": 1}}}, "sigma_d is missing"),
        ({"fast-3": {"1": {"sigma_d": 1, "tilt": -1}}}, "tilt"),
    ],
)
def test_hostile_settings_in_a_card_are_refused(tmp_path: Path, settings: object, message: str) -> None:
    state = new_network("light", 3, (8, 8, 8), 1).state_dict()
    write_weights(tmp_path / "w.safetensors", state, {"settings": settings})
    problem = Problem(torch.rand(1, 3, 16, 16), Mask(torch.ones(16, 16)), Gaussian(0.1))
    with pytest.raises(InputError, match=message):
        make_method("fast", load_denoiser(tmp_path / "w.safetensors"), problem, torch.tensor([0.1]), calls=3)


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
    training._loss_of_step = lambda: training.loss_on(scene)  # type: ignore[method-assign]
    good = [parameter.detach().clone() for parameter in training.network.parameters()]
    schedule = training.schedule.rows()
    loss = float(training._advance())
    assert math.isfinite(loss) == (broken < 2)  # without any good picture it is for `run` to roll back
    assert training.schedule.rows() == schedule
    # Only the weight decay moves them.
    for before, after in zip(good, training.network.parameters(), strict=True):
        torch.testing.assert_close(after.detach(), before, rtol=1e-6, atol=0)


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"calls": 1}, "calls = 1: give at least 2"),
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
        ((*given, "--calls", "1"), "calls = 1: give at least 2"),
        ((*given, "--start", "nothing.safetensors"), "nothing.safetensors: no such weight file"),
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
    assert list(card["psnr"]) == ["1", "10", "20", "40"]
    assert 15 < card["psnr"]["40"] < card["psnr"]["1"] < 60
    assert "1 pictures" in card["psnr_on"]


def test_problems_of_the_blurs_are_solved_on_their_own_domain(folder: Path, tmp_path: Path) -> None:
    training = InLoopTraining(plan_of(folder, tmp_path / "w.safetensors", crop=48))
    shapes = set()
    for number in range(8):
        blur = training.pool.source.blur(0, number)
        scene = training.scene(blur, 5.0, False)
        shapes.add(scene.problem.observed.shape[-1] - scene.clean.shape[-1])
        assert math.isfinite(float(training.loss_on(scene).detach()))
    assert 0 in shapes
    assert min(shapes) < 0  # unknown borders: the scene is larger than what is observed
