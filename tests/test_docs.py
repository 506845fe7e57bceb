"""The documentation: links lead somewhere, Python blocks compile, commands and options exist, pages stay short."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from pnpladmm.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
GUIDE = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
WIDEST = 130
MOST_WORDS = {"guide": 1100, "reference": 2200}

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def pages(paths: list[Path]) -> Any:
    return pytest.mark.parametrize("page", paths, ids=lambda page: str(page.relative_to(ROOT)))


def test_there_are_pages() -> None:
    assert len(GUIDE) >= 8
    assert len(REFERENCE) >= 5


def without_code(text: str) -> str:
    """The text without fenced blocks, indented blocks after an empty line, and inline code."""
    text = re.sub(r"(?<=\n\n)(?: {4}[^\n]*\n|\n(?= {4}))+", "", FENCE.sub("", text))
    return re.sub(r"`[^`]*`", "code", text)


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pages(PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(without_code(page.read_text())):
        if re.match(r"[a-z]+:|gallery/", target):  # the gallery is made by `make docs`
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors(file), f"{target}: no such heading"


@pages(GUIDE)
def test_python_blocks_compile(page: Path) -> None:
    for language, code in FENCE.findall(page.read_text()):
        if language == "python":
            compile(code, str(page), "exec")


@cache
def commands() -> Any:
    return typer.main.get_command(app)


def options_of(command: Any) -> set[str]:
    listed = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return {name for name in listed if name.startswith("-")} | {"--help", "-h"}


def command_lines(text: str) -> Iterator[str]:
    """All that begins with `pnpladmm` in indented blocks and in inline code."""
    joined = re.sub(r"\\\n *", "", text)
    joined = re.sub(r"\]\n +\[", "] [", joined)
    for line in joined.splitlines():
        if match := re.match(r" {4,}(pnpladmm [a-z].*)", line):
            yield re.sub(r"  +#.*", "", match[1])
    for code in re.findall(r"`(pnpladmm [^`]+)`", FENCE.sub("", text)):
        yield " ".join(code.split())


def check_command(line: str) -> None:
    words = shlex.split(re.sub(r"[\[\]]", " ", line))[1:]
    names, words = words[0].split("|"), words[1:]
    assert len(names) == 1
    assert names[0] in commands().commands, f"{line}: no such command"
    command = commands().commands[names[0]]
    if hasattr(command, "commands"):
        following = words[0].split("|") if words else []
        known = [name for name in following if name in command.commands]
        if known:
            assert known == following, f"{line}: no such command"
            words = words[1:]
            command = command.commands[known[0]]
        elif following:
            assert names[0] == "train", f"{line}: no such command"
            command = command.commands["run"]
    given = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert given <= options_of(command), f"{line}: no option {', '.join(sorted(given - options_of(command)))}"


@pages([page for page in PAGES if page.name != "CHANGELOG.md"])  # it also lists earlier names
def test_commands_and_their_options_exist(page: Path) -> None:
    for line in command_lines(page.read_text()):
        check_command(line)


@pages([*GUIDE, *REFERENCE])
def test_options_named_alone_exist(page: Path) -> None:
    every: set[str] = set()
    for command in commands().commands.values():
        for one in (command, *getattr(command, "commands", {}).values()):
            every |= options_of(one)
    for code in re.findall(r"`(--[a-z][^`]*)`", page.read_text()):
        assert {word for word in code.split() if word.startswith("--")} <= every, code


def test_wrong_commands_are_found() -> None:
    for wrong in ("pnpladmm restores a.png", "pnpladmm restore a.png --nosie 5", "pnpladmm bench operator --quick"):
        with pytest.raises(AssertionError):
            check_command(wrong)
    check_command("pnpladmm train PHOTOS my.safetensors --minutes 30")
    check_command("pnpladmm bench operators|all [--quick]")


@pages(PAGES)
def test_pages_are_finished_and_narrow(page: Path) -> None:
    for number, line in enumerate(page.read_text().splitlines(), 1):
        assert not re.search(r"@[A-Z]+@", line), f"line {number}: a placeholder"
        assert len(line) <= WIDEST or line.lstrip().startswith("|"), f"line {number} has {len(line)} characters"


@pages([*GUIDE, *REFERENCE])
def test_pages_are_short(page: Path) -> None:
    most = MOST_WORDS["reference" if page in REFERENCE else "guide"]
    words = len(page.read_text().split())
    assert words <= most, f"{words} words"


def named_pages() -> Iterator[tuple[Path, str]]:
    """All paths `docs/...` in the code, with the file that names them."""
    for folder in ("src", "tests", "benchmarks", "examples"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for path in re.findall(r"\bdocs/[\w./-]*\w/?", file.read_text()):
                yield file, path


def test_pages_named_in_the_code_exist() -> None:
    found = list(named_pages())
    assert len(found) >= 10
    for file, path in found:
        assert (ROOT / path).exists(), f"{file.relative_to(ROOT)} names {path}: no such page"
