"""Links from pages to files outside the documentation, such as CONTRIBUTING.md, and the pages that wrap them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
WRAPPED = {
    "contributing": "CONTRIBUTING.md",
    "changelog": "CHANGELOG.md",
    "benchmarks": "benchmarks/README.md",
    "napari": "napari-plugin/README.md",
}
"""Pages of the site that are files of the repository, which lie outside of docs/."""

NOTES = """
```{toctree}
:hidden:
:glob:

2*
```
"""
"""The list of notes for the menu of the site."""


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _links)
    return {"parallel_read_safe": True}


def _links(app: Any, name: str, source: list[str]) -> None:
    """In the repository, links lead to files. In the site they lead to the pages that wrap these files."""
    if name in WRAPPED:
        text = (ROOT / WRAPPED[name]).read_text(encoding="utf-8")
        source[0] = text.replace("](docs/", "](").replace("](../docs/", "](").replace("](../README.md)", "](index.md)")
    depth = "../" * name.count("/")
    for page, file in WRAPPED.items():
        source[0] = source[0].replace(f"]({depth}../{file}", f"]({depth}{page}.md")
    source[0] = source[0].replace("](../README.md)", "](../index.md)")
    if name == "notes/README":
        source[0] += NOTES
