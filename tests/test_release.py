"""What is released says the same everywhere: versions, what is needed, which files belong to the package."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import yaml

import pnpladmm as pl

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RECIPE = re.sub(r"\{\{.*?\}\}", "", (ROOT / "packaging" / "conda" / "meta.yaml").read_text())
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def test_the_version_is_one() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    recipe = yaml.safe_load(RECIPE)
    assert PROJECT["project"]["version"] == pl.__version__ == citation["version"] == recipe["package"]["version"]
    assert f"## {pl.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_recipe_needs_what_the_package_needs() -> None:
    wanted = set()
    for line in PROJECT["project"]["dependencies"]:
        name, limits = re.fullmatch(r"([\w-]+)(.*)", line).groups()  # type: ignore[union-attr]
        wanted.add(f"{CONDA_NAMES.get(name, name)} {limits}")
    run = yaml.safe_load(RECIPE)["requirements"]["run"]
    assert wanted == {line for line in run if not line.startswith("python ")}
    assert f"python {PROJECT['project']['requires-python']}" in run


def test_every_file_of_the_package_is_in_the_wheel() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["pnpladmm"]
    package = ROOT / "src" / "pnpladmm"
    others = [p.relative_to(package) for p in package.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")]
    assert len(others) > 30
    for file in others:
        assert any(fnmatch(str(file), pattern.replace("**/", "*")) for pattern in patterns), f"{file} is left out"
    folders = {p.parent for p in package.rglob("*.py")}
    assert all((folder / "__init__.py").exists() for folder in folders), "a folder without __init__.py is left out"


def test_the_readme_can_stand_alone() -> None:
    """It opens with the two commands, and says how to install before anything else."""
    text = (ROOT / "README.md").read_text()
    assert re.match(r"# pnpladmm\n\n    make demo .*\n    make test ", text)
    assert text.index("## Install") < text.index("## Use it") < text.index("## How good") < text.index("## Cite")
    for row in re.findall(r"^\| (?:PnP|Richardson|`restore).*\|$", text, re.MULTILINE):
        assert len(re.findall(r"\d dB\b", row)) == 4, f"a number without its unit: {row}"
        assert "denoiser calls" in row
