"""The gate: weights, states, settings and checkpoints that are none."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import pnpladmm as pl
from gate_cases import little_memory, refused  # noqa: F401
from pnpladmm.solvers.settings import read_settings
from pnpladmm.tensor_files import read_tensors


def with_strides(path: Path) -> None:
    torch.save({"m_head.weight": torch.as_strided(torch.zeros(1), (40_000, 8000, 3, 3), (0, 0, 0, 0))}, path)


WEIGHTS: dict[str, Callable[[Path], object]] = {
    "a stride of 0": with_strides,
    "an overlap": lambda p: torch.save({"w": torch.as_strided(torch.zeros(100), (90, 10), (1, 1))}, p),
    "float8": lambda p: torch.save({"w": torch.zeros(4).to(torch.float8_e4m3fn)}, p),
    "sparse": lambda p: torch.save({"w": torch.eye(4).to_sparse()}, p),
    "meta": lambda p: torch.save({"w": torch.empty(10**6, 10**6, device="meta")}, p),
    "complex": lambda p: torch.save({"w": torch.zeros(4, dtype=torch.complex64)}, p),
    "quantised": lambda p: torch.save({"w": torch.quantize_per_tensor(torch.zeros(4), 0.1, 0, torch.qint8)}, p),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", [".pth", ".pt"])
@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_that_are_no_plain_numbers(case: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"w{suffix}"
    WEIGHTS[case](path)
    assert path.name in refused(lambda: read_tensors(path))


def test_torch_s_older_format_is_read(tmp_path: Path) -> None:
    weights = {"w": torch.randn(30, 20), "b": torch.randn(20)}
    torch.save(weights, tmp_path / "w.pth", _use_new_zipfile_serialization=False)
    found, _ = read_tensors(tmp_path / "w.pth")
    assert all(torch.equal(found[key], weights[key]) for key in weights)


@pytest.mark.parametrize("value", ["nan", '"x"', "[1]", "true", "NaN1", 5000 * "9", "{"])
def test_states_with_odd_numbers(value: str, tmp_path: Path) -> None:
    problem = pl.Problem(torch.rand(1, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    state = pl.LADMM(pl.load_denoiser("tv"), 0.05, beta=100.0, L_x=110.0).init(problem)
    path = tmp_path / "s.safetensors"
    pl.save_state(state, path)
    assert pl.load_state(path).iteration == 0
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["iteration"] = value
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    refused(lambda: pl.load_state(path), "iteration is")


@pytest.mark.parametrize(
    "content", ["[", 30_000 * "[", "[1]", '{"a": 5}', '{"a": {"b": {"c": {"d": "e"}}}}', "\\ud800"]
)
def test_settings_that_are_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(content)
    refused(lambda: read_settings(tmp_path / "s.json"), "not a table of settings")


@pytest.mark.parametrize(
    "numbers", ['{"step": NaN}', '{"step": 2.5}', '{"seconds": -1}', '{"rate_factor": 0}', "[", "5"]
)
def test_checkpoints_with_odd_numbers(numbers: str, tmp_path: Path) -> None:
    from pnpladmm.workshop.training.checkpoint import Parts, read_checkpoint, write_checkpoint

    network = torch.nn.Linear(2, 2)
    parts = Parts(network, torch.nn.Linear(2, 2), torch.optim.AdamW(network.parameters()), torch.Generator())
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, parts, {"step": 3.0, "loss": float("nan")}, {})
    assert read_checkpoint(path, parts)[0]["step"] == 3
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["numbers"] = numbers
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + content[8 + length :])
    refused(lambda: read_checkpoint(path, parts), "c.safetensors")
