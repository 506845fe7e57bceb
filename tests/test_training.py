"""Training: crops, noise levels, budgets, a kill and a resumption, tables, cards, pruning."""

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
from torch import Tensor

from conftest import Run
from pnpladmm.denoisers.building import new_network, read_network
from pnpladmm.denoisers.light import LightNet
from pnpladmm.denoisers.loading import load_network
from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training import evaluate
from pnpladmm.workshop.training.checkpoint import checkpoint_path, write_weights
from pnpladmm.workshop.training.data import CropStore, picture_files, read_pixels
from pnpladmm.workshop.training.loop import Progress, Training, train
from pnpladmm.workshop.training.plan import Plan
from pnpladmm.workshop.training.prune import hidden_contributions, prune
from pnpladmm.workshop.training.schedule import draw_sigma, expected_error, learning_rate, share_spent
from pnpladmm.workshop.training.tables import WEAK_NOISE, markdown

PNPLADMM = [sys.executable, "-c", "from pnpladmm.cli import main; main()"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four small smooth pictures, one too small for a crop, one file that is no picture."""
    path = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i, suffix in enumerate(["png", "jpg", "webp", "png"]):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 5, 3), dtype=np.uint8))
        coarse.resize((40 + 8 * i, 48), Image.Resampling.BICUBIC).save(path / f"{i}.{suffix}")
    Image.fromarray(np.zeros((8, 9, 3), np.uint8)).save(path / "small.png")
    (path / "SOURCES.tsv").write_text("crop\tpicture\n")
    return path


def make_plan(folder: Path, out: Path, **changes: object) -> Plan:
    """A training of seconds: a network of 8 channels, crops of 16x16."""
    tiny = Plan(
        data=folder, out=out, steps=30, batch=4, crop=16, widths=(8, 8, 8), blocks=1, warmup_steps=5,
        log_steps=5, checkpoint_seconds=0.0,
    )  # fmt: skip
    return replace(tiny, **changes)  # type: ignore[arg-type]


def test_crops_are_pieces_of_the_pictures_in_all_eight_orientations() -> None:
    a = torch.arange(7 * 9).reshape(7, 9, 1)
    b = torch.arange(100, 100 + 6 * 5).reshape(6, 5, 1)
    store = CropStore.from_pictures([a.to(torch.uint8), b.to(torch.uint8)])
    crops = (store.crops(600, 4, torch.Generator().manual_seed(0)) * 255).round().long()[:, 0]

    def pieces(picture: Tensor) -> set[tuple[int, ...]]:
        found = set()
        for square in picture[..., 0].unfold(0, 4, 1).unfold(1, 4, 1).reshape(-1, 4, 4):
            for turn in range(4):
                turned = square.rot90(turn)
                found |= {tuple(turned.flatten().tolist()), tuple(turned.T.flatten().tolist())}
        return found

    possible = pieces(a) | pieces(b)
    drawn = {tuple(crop.flatten().tolist()) for crop in crops}
    assert drawn <= possible
    assert len(drawn) > 0.8 * len(possible)
    share = float((crops.flatten(1).amin(1) >= 100).float().mean())
    assert abs(share - 30 / 93) < 0.08  # by area


def test_folders_are_read_and_bad_ones_refused(folder: Path, tmp_path: Path) -> None:
    assert [path.name for path in picture_files(folder)] == ["0.png", "1.jpg", "2.webp", "3.png", "small.png"]
    store = CropStore.from_folder(folder, 1, 16)
    assert len(store) == 4
    assert store.pixels.shape[1] == 1
    twice = CropStore.from_folder(folder, 3, 16, scales=(1.0, 0.5))
    assert twice.sizes.tolist()[:4] == [[48, 40], [24, 20], [48, 48], [24, 24]]
    rgb = read_pixels(folder / "0.png", 3)[0].astype(float)
    luma = read_pixels(folder / "0.png", 1)[0][..., 0]
    assert np.abs(rgb @ [0.299, 0.587, 0.114] - luma).max() < 1
    with pytest.raises(InputError, match="no such folder"):
        picture_files(tmp_path / "absent")
    with pytest.raises(InputError, match="no pictures in it"):
        picture_files(tmp_path)
    with pytest.raises(InputError, match="at least 512 pixels"):
        CropStore.from_folder(folder, 3, 512)
    (tmp_path / "torn.png").write_bytes((folder / "0.png").read_bytes()[:100])
    with pytest.raises(InputError, match=r"torn.png: not a picture"):
        CropStore.from_folder(tmp_path, 3, 8)


def test_noise_levels_and_their_weights() -> None:
    sigma = draw_sigma(20000, 0.25, torch.Generator().manual_seed(0)) * 255
    assert 0 <= float(sigma.min()) < float(sigma.max()) < 60
    assert abs(float((sigma < 12).float().mean()) - (0.25 + 0.75 * 0.2)) < 0.02
    levels = torch.tensor([0.0, 1.0, 5.0, 50.0]) / 255
    weights = 1 / expected_error(levels)
    assert bool(torch.isfinite(weights).all())
    assert bool((weights.diff() < 0).all())


def test_the_learning_rate_warms_up_and_falls_to_zero() -> None:
    assert learning_rate(1.0, 0, 5, 0.0) == pytest.approx(0.2)
    assert learning_rate(3.0, 5, 5, 0.0) == 3.0
    assert learning_rate(1.0, 50, 5, 0.5) == pytest.approx(0.5)
    assert learning_rate(1.0, 200, 5, 1.2) == 0.0
    assert share_spent(10, 45.0, steps=100, minutes=1.0) == 0.75
    assert share_spent(90, 45.0, steps=100, minutes=1.0) == 0.9
    assert share_spent(90, 45.0, steps=None, minutes=0.5) == 1.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": None}, "never end"),
        ({"steps": 0}, "steps = 0"),
        ({"crop": 20}, "crop = 20"),
        ({"scales": (1.0, 2.0)}, "scales"),
        ({"channels": 4}, "channels = 4"),
        ({"weak_noise": 1.5}, "weak_noise"),
        ({"precision": "int8"}, "int8"),
        ({"precision": "float16", "network": "prox-drunet"}, "give float32 or bfloat16"),
        ({"soft_chroma": 1.5}, "soft_chroma = 1.5"),
        ({"optimizer": "sgd"}, "give adamw or muon"),
        ({"optimizer": "muon", "network": "prox-drunet"}, "give adamw$"),
        ({"soft_chroma": 0.5, "channels": 1}, "no colour"),
        ({"out": Path("w.pth")}, ".safetensors"),
        ({"learning_rate": math.nan}, "learning_rate"),
    ],
)
def test_settings_that_cannot_be_trained_with_are_refused(
    folder: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        replace(make_plan(folder, tmp_path / "w.safetensors"), **change)  # type: ignore[arg-type]


def test_a_training_learns_and_leaves_weights_a_card_and_a_table(folder: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    plan = make_plan(folder, tmp_path / "w.safetensors", steps=150, validation=folder, learning_rate=5e-3)
    card = train(plan, seen.append)
    assert card["steps"] == 150
    assert seen[-1].step == 150
    assert sum(p.loss for p in seen[-4:]) < 0.5 * sum(p.loss for p in seen[:4])
    assert json.loads((tmp_path / "w.json").read_text()) == card
    tensors, metadata = read_tensors(tmp_path / "w.safetensors")
    assert json.loads(metadata["card"]) == card
    assert all(value.dtype == torch.float16 for value in tensors.values())
    assert set(card["psnr"]) == {"5", "15", "25", "50"}
    assert str(tmp_path) not in json.dumps(card)
    assert "PSNR" in str(seen[-1])


def test_grey_time_budget_and_start_from_weights_alone(folder: Path, tmp_path: Path) -> None:
    first = make_plan(folder, tmp_path / "a.safetensors", channels=1, steps=None, minutes=0.02)
    card = train(first)
    assert 1.1 <= 60 * card["minutes"] < 20
    second = make_plan(folder, tmp_path / "b.safetensors", channels=1, start=first.out, steps=3, learning_rate=1e-9)
    assert train(second)["started_from"] == "a.safetensors"
    before, after = (read_network(path).state_dict() for path in (first.out, second.out))
    assert all(torch.allclose(before[key], after[key], atol=1e-3) for key in before)
    with pytest.raises(InputError, match="holds a light for 1 channels"):
        Training(replace(second, channels=3, out=tmp_path / "c.safetensors"))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_resuming_is_as_if_never_stopped(folder: Path, tmp_path: Path, optimizer: str) -> None:
    whole = make_plan(folder, tmp_path / "whole.safetensors", steps=20, optimizer=optimizer)
    train(whole)
    torn = Training(replace(whole, out=tmp_path / "torn.safetensors"))
    for _ in range(10):
        torn._advance()
    torn.save()
    assert train(torn.plan)["steps"] == 20
    a, b = (read_network(plan.out).state_dict() for plan in (whole, torn.plan))
    assert all(torch.equal(a[key], b[key]) for key in a)
    with pytest.raises(InputError, match="another network"):
        Training(replace(torn.plan, widths=(8, 8, 16)))
    with pytest.raises(InputError, match=r"a checkpoint of (AdamW, not of Muon|Muon, not of AdamW)"):
        Training(replace(torn.plan, optimizer="adamw" if optimizer == "muon" else "muon"))
    write_weights(checkpoint_path(torn.plan.out), torn.network.state_dict(), {})
    with pytest.raises(InputError, match="checkpoint"):
        Training(torn.plan)


def test_killed_and_resumed_it_reaches_the_same_steps_and_loss(folder: Path, tmp_path: Path) -> None:
    def command(out: Path) -> list[str]:
        options = "--steps 200 --batch 4 --crop 16 --widths 8,8,8 --blocks 1 --log-steps 10"
        options += " --warmup-steps 5 --checkpoint-seconds 0 --learning-rate 3e-3"
        return [*PNPLADMM, "train", str(folder), str(out), *options.split()]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole, torn = tmp_path / "whole.safetensors", tmp_path / "torn.safetensors"
    undisturbed = subprocess.Popen(command(whole), stdout=subprocess.DEVNULL, env=environment)
    with subprocess.Popen(command(torn), stdout=subprocess.DEVNULL, env=environment) as process:
        deadline = time.monotonic() + 60
        while not checkpoint_path(torn).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    killed_at = json.loads(read_tensors(checkpoint_path(torn))[1]["numbers"])["step"]
    assert 10 <= killed_at < 200
    assert undisturbed.wait(timeout=120) == 0
    done = subprocess.run(command(torn), check=True, env=environment, capture_output=True, text=True)
    assert int(done.stdout.split()[1]) > killed_at  # it went on, it did not begin again
    cards = [json.loads(path.with_suffix(".json").read_text()) for path in (whole, torn)]
    assert [card["steps"] for card in cards] == [200, 200]
    assert cards[1]["final_loss"] == pytest.approx(cards[0]["final_loss"], rel=0.3)


@pytest.mark.parametrize("channels", [1, 3])
def test_drunet_starts_near_the_identity(channels: int) -> None:
    torch.manual_seed(0)
    network = new_network("drunet", channels, (16, 16, 16, 16), 1)
    x = torch.rand(2, channels, 32, 40)
    with torch.no_grad():
        restored = network(x, torch.tensor([0.05, 0.2]))
    assert 0 < float((restored - x).norm() / x.norm()) < 0.03


def test_a_loss_that_is_not_finite_rolls_back_and_gives_up_in_the_end(folder: Path, tmp_path: Path) -> None:
    training = Training(make_plan(folder, tmp_path / "w.safetensors", steps=20))
    step = training._advance
    calls = 0

    def advance() -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 7:
            with torch.no_grad():
                training.network.head.weight.fill_(math.nan)  # type: ignore[union-attr]
        return step()

    training._advance = advance  # type: ignore[method-assign]
    assert math.isfinite(training.run()["final_loss"])
    assert training.rate_factor == 0.5
    hopeless = Training(make_plan(folder, tmp_path / "h.safetensors", learning_rate=1e30, clip=1e30))
    with pytest.raises(InputError, match="too high"):
        hopeless.run()


def test_the_tables_measure_what_they_say(folder: Path) -> None:
    rows = evaluate.psnr_table(lambda x, sigma: x, folder, (10.0, 25.0))
    assert [row.psnr for row in rows] == [row.noisy for row in rows]
    assert rows[0].noisy == pytest.approx(-20 * math.log10(10 / 255), abs=0.3)
    assert rows == evaluate.psnr_table(lambda x, sigma: x, folder, (10.0, 25.0))  # the seed is fixed
    assert rows[0].pictures == 5
    weak = evaluate.weak_noise_table(lambda x, sigma: x + 1 / 255, folder, (0.5, 2.0), channels=1, limit=2)
    assert weak[0].moved == pytest.approx(1, rel=1e-4)
    assert weak[0].gain < 0
    assert weak[0].worse == weak[0].pictures == 2
    assert "| 0.5 | 1.000 |" in markdown(WEAK_NOISE, weak)


def test_the_commands_print_tables_and_one_line_errors(folder: Path, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, new_network("light", 3, (8, 8, 8), 1).state_dict(), {"network": "light"})
    code, out, _ = run("train", "evaluate", str(path), str(folder), "--sigmas", "25", "--card", "--limit", "2")
    assert code == 0
    assert "| 25 | " in out
    card = json.loads((tmp_path / "w.json").read_text())
    assert card["network"] == "light"
    assert set(card["psnr"]) == {"25"}
    assert load_network(path).channels == (3,)
    weak = ("evaluate", str(path), str(folder), "--table", "weak-noise", "--limit", "1")
    code, out, _ = run("train", *weak, "--grey")
    assert code == 0
    assert "made worse" in out
    for wrong, message in (
        (("evaluate", str(path), str(tmp_path / "absent")), "no such folder"),
        ((str(folder), str(path)), "minutes, steps: "),
        (("--steps", "1", str(folder), str(path), "--widths", "8,x"), "--widths 8,x: "),
        ((*weak, "--sigmas", "5;15"), "--sigmas 5;15: "),
        ((*weak, "--card"), "--card: "),
        (("prune", str(path), str(folder), str(path), "--hidden", "8,8"), "hidden = 8,8: "),
    ):
        code, out, err = run("train", *wrong)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert message in err


def test_run_is_the_default_command(folder: Path, tmp_path: Path, run: Run) -> None:
    options = ["--steps", "3", "--batch", "2", "--crop", "16", "--widths", "8,8,8", "--blocks", "1"]
    for name, first in (("short", []), ("long", ["run"])):
        code, out, _ = run("train", *first, str(folder), f"{name}.safetensors", *options)
        assert code == 0
        assert out.startswith("step 3  ")
    a, b = (read_network(tmp_path / f"{name}.safetensors").state_dict() for name in ("short", "long"))
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert "evaluate" in run("train", "--help")[1]
    assert "--penalty-crops" in run("train", "run", "--help")[1]


def test_pruning_removes_the_channels_that_contribute_least(folder: Path, tmp_path: Path, run: Run) -> None:
    network = new_network("light", 1, (8, 8, 8), 2)
    assert isinstance(network, LightNet)
    for name, parameter in network.named_parameters():
        if name.startswith("body") and "inner" in name:
            parameter.data[3:5] = 0  # dead channels: leaving them out changes nothing
    x, sigma = torch.rand(2, 1, 32, 32), torch.tensor([0.1, 0.2])
    contributions = hidden_contributions(network, x, sigma, torch.randn_like(x))
    state = prune(network, contributions, (8, 8, 6))
    path = tmp_path / "full.safetensors"
    write_weights(tmp_path / "pruned.safetensors", state, {})
    write_weights(path, network.state_dict(), {})
    full, pruned = (load_network(tmp_path / f"{name}.safetensors") for name in ("full", "pruned"))
    assert torch.allclose(full(x, 0.1), pruned(x, 0.1), atol=1e-6)
    with pytest.raises(InputError, match="hidden = 9"):
        prune(network, contributions, (8, 9, 8))
    large = tmp_path / "large"
    large.mkdir()
    Image.open(folder / "0.png").resize((160, 136)).save(large / "0.png")
    for hidden, expected in (("8,8,9", 2), ("8,8,6", 0)):
        done = run("train", "prune", str(path), str(large), "out.safetensors", "--hidden", hidden, "--crops", "2")
        assert done[0] == expected
    card = json.loads((tmp_path / "out.json").read_text())
    assert card["pruned_to_hidden"] == "8,8,6"
    assert card["parameters"] == sum(value.numel() for value in state.values())
    assert torch.allclose(load_network(tmp_path / "out.safetensors")(x, 0.1), full(x, 0.1), atol=1e-6)
