"""Freed memory is kept where the program asks for it, and nowhere else."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

import pnpladmm as pl
from pnpladmm import cli

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")

FAULTS = """
import json, resource, sys, torch
import pnpladmm as pl
kept = pl.keep_memory() if sys.argv[1] == "keep" else None
faults = []
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert float(torch.zeros(32, 1024, 1024).sum()) == 0
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(json.dumps([kept, faults]))
"""


def faults(how: str) -> tuple[bool | None, list[int]]:
    """Pages that the system had to find for a map of 128 MB, six times."""
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    kept, found = json.loads(done.stdout)
    return kept, found


@glibc
def test_kept_memory_is_used_again() -> None:
    kept, found = faults("keep")
    assert kept is True
    # Small blocks that come to lie where the first map was may cost one more.
    assert sum(pages > max(found) / 10 for pages in found) <= 2


@glibc
def test_importing_the_library_changes_nothing() -> None:
    kept, found = faults("import")
    assert kept is None
    assert min(found) > max(found) / 2


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert pl.keep_memory() is False


def test_commands_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(cli, "keep_memory", lambda: order.append("kept"))
    monkeypatch.setattr(cli, "app", lambda: order.append("command"))
    cli.main()
    assert order == ["kept", "command"]
