"""What the tests of lost data share: a folder is compared before and after a command."""

from __future__ import annotations

from pathlib import Path

from conftest import Run

FEW = ("--noise", "3", "--denoiser", "tv", "--iterations", "2")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refuses(run: Run, folder: Path, *arguments: str) -> str:
    """Run a command that must fail in one line and leave every file as it was."""
    before = contents(folder)
    code, _, err = run(*arguments)
    assert code in (1, 2), err
    assert contents(folder) == before
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == 1, err
    assert len(lines[0]) <= 320
    return lines[0]
