"""Freed memory is kept where the program asks for it, and nowhere else."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

import pnpladmm as pl

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")

FAULTS = """
import json, resource, sys, torch
import pnpladmm as pl
kept = pl.keep_memory() if sys.argv[1] == "keep" else None
faults = []
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    total = float(torch.zeros(64, 1024, 1024).sum())
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(json.dumps([kept, total, faults]))
"""


def faults(how: str) -> tuple[bool | None, list[int]]:
    """Pages that the system had to find for a map of 256 MB, three times."""
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    kept, total, found = json.loads(done.stdout)
    assert total == 0
    return kept, found


@glibc
def test_kept_memory_is_used_again() -> None:
    kept, found = faults("keep")
    assert kept is True
    assert found[0] > 1000
    assert max(found[1:]) < found[0] / 20


@glibc
def test_importing_the_library_changes_nothing() -> None:
    kept, found = faults("import")
    assert kept is None
    assert min(found) > 1000


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert pl.keep_memory() is False
