"""A short run of the fuzzer with fixed seeds, and every file that it ever found. The long run: `python -m fuzz`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fuzz.checks import GOOD, judged
from fuzz.forks import Forked
from fuzz.mutations import mutated
from fuzz.parts import FORMATS, seeds

FILES = 10
"""For each format."""
FOUND = sorted((Path(__file__).parent / "fuzz" / "found").glob("*.*"))


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PNPLADMM_MAX_BYTES", "67108864")
    monkeypatch.setattr("pnpladmm.sandbox.subprocess.Popen", Forked)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMATS)
def test_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    suffix, good = seeds(name, tmp_path)
    path = tmp_path / f"case{suffix}"
    for content in good:
        path.write_bytes(content)
        assert judged(name, path) == ("read", "")
    counts: Counter[str] = Counter()
    for number in range(FILES):
        content = mutated(name, good, np.random.default_rng([7, number]))
        path.write_bytes(content)
        verdict, words = judged(name, path)
        counts[verdict] += 1
        assert verdict in GOOD, f"file {number}: {words}"
    assert counts["refused"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("found", FOUND, ids=lambda path: path.name)
def test_found_files_stay_harmless(found: Path, tmp_path: Path) -> None:
    """Their names are FORMAT--WHAT.SUFFIX."""
    name = re.sub(r"--.*", "", found.name).replace("_", " ")
    suffix, _ = seeds(name, tmp_path)  # also the files that lie beside
    path = tmp_path / f"case{suffix}"
    path.write_bytes(found.read_bytes())
    verdict, words = judged(name, path)
    assert verdict in GOOD, words
