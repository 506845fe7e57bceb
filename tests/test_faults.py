"""A small share of the faults: one of each kind, over the quick commands. `python -m faults` runs as many as wanted."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from faults.harness import FAULTS, Harness, random_fault
from pnpladmm.files import StrictFile

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="faults need os.fork")
QUICK = ("restore", "restore a TIFF", "simulate", "inspect")


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a process with threads cannot be forked safely
    yield Harness(tmp_path_factory.mktemp("faults"))
    torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", FAULTS)
def test_nothing_is_lost(kind: str, harness: Harness) -> None:
    rng = random.Random(FAULTS.index(kind))
    name = QUICK[FAULTS.index(kind) % len(QUICK)]
    fault = random_fault(kind, harness.undisturbed(name), rng)
    assert harness.problems(name, fault) == [], fault


def test_a_file_that_is_cut_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy's own way into a plain file says nothing when the last bytes do not fit."""
    array = np.arange(1000, dtype=np.float64)
    with StrictFile(tmp_path / "a.npy") as file:
        np.save(file, array)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), array)
    if Path("/dev/full").exists():
        (tmp_path / "full").symlink_to("/dev/full")
        with pytest.raises(OSError, match="space"), StrictFile(tmp_path / "full") as file:
            np.save(file, array)
