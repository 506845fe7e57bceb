"""Weights with fewer digits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from conftest import Run
from pnpladmm.denoisers import load_denoiser
from pnpladmm.denoisers.building import new_network
from pnpladmm.tensor_files import read_tensors
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.checkpoint import write_weights
from pnpladmm.workshop.training.compact import LARGE, rounded


@pytest.mark.parametrize("bits", [1, 4, 7, 10])
def test_numbers_are_rounded_to_the_nearest(bits: int) -> None:
    x = torch.randn(20_000, generator=torch.Generator().manual_seed(0)).half()
    found = rounded(x, bits)
    mantissa, exponent = torch.frexp(x.double())
    wanted = torch.ldexp((mantissa * 2 ** (bits + 1)).round() / 2 ** (bits + 1), exponent)
    halves = ((mantissa * 2 ** (bits + 1)) % 1 - 0.5).abs() == 0  # away from 0 here, to even there
    assert torch.equal(found.double()[~halves], wanted[~halves])
    assert torch.equal(found.sign(), x.sign())


def test_only_large_tensors_are_rounded_and_the_card_says_so(tmp_path: Path, run: Run) -> None:
    weights, out = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    network = new_network("light", 3, (16, 96, 32), 1)
    write_weights(weights, network.state_dict(), {"network": "light"})
    assert run("train", "compact", str(weights), str(out))[0] == 0
    before, after = read_tensors(weights)[0], read_tensors(out)[0]
    changed = {key for key, value in before.items() if not torch.equal(value, after[key])}
    assert changed == {key for key, value in before.items() if value.numel() > LARGE} != set()
    assert json.loads(out.with_suffix(".json").read_text())["rounded"].startswith("4 bits")
    x = torch.rand(1, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    old, new = (load_denoiser(path)(x, 0.05) for path in (weights, out))
    assert 0 < float((new - old).norm()) < 0.05 * float(old.norm())


def test_what_cannot_be_rounded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bits = 0: give a number from 1 to 10"):
        rounded(torch.ones(2).half(), 0)
