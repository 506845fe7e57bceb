"""The examples run from end to end, from the command line, and reach what the README says."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Import an example with its pictures going elsewhere."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def load(name: str) -> ModuleType:
        common = importlib.import_module("common")
        monkeypatch.setattr(common, "PICTURES", tmp_path / "pictures")
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    return load


@pytest.mark.slow
def test_astronomy_keeps_the_flux_of_isolated_stars(example, tmp_path: Path) -> None:
    errors = example("astronomy").main(tmp_path)
    assert len(errors) == 8
    assert max(abs(error) for error in errors.values()) < 0.02
    assert (tmp_path / "pictures" / "astronomy.png").exists()


@pytest.mark.slow
def test_microscopy_gains(example, tmp_path: Path) -> None:
    before, after = example("microscopy").main(tmp_path)
    assert after > before + 0.5  # against single pixels as the truth, where every width counts as error


@pytest.mark.slow
def test_photograph_gains(example, tmp_path: Path) -> None:
    before, after = example("photograph").main(tmp_path)
    assert after > before + 4
