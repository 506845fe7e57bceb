"""The directive `commands`: every command of the command line with its arguments and options, from the code itself.

Typer brings a click of its own, which Sphinx's extensions for click do not know.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import nested_parse_with_titles

from pnpladmm.cli import app

LEVELS = "-~^"
"""What underlines the titles of commands, of their commands, and so on."""


class Commands(SphinxDirective):
    """`.. commands::`: a section for each command."""

    def run(self) -> list[nodes.Node]:
        """The sections."""
        lines = StringList(list(pages(typer.main.get_command(app), "pnpladmm", 0)), "the command line")
        container = nodes.section()
        container.document = self.state.document
        nested_parse_with_titles(self.state, lines, container, self.content_offset)
        return container.children


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}


def pages(group: Any, prefix: str, level: int) -> Iterator[str]:
    """Sections in reStructuredText for the commands of a group, and for theirs."""
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        title = f"{prefix} {name}"
        yield from (title, len(title) * LEVELS[level], "")
        yield from (*inspect.cleandoc(command.help or "").replace("\f", "").splitlines(), "")
        yield from described(command, title)
        if hasattr(command, "commands"):
            yield from pages(command, title, level + 1)


def described(command: Any, title: str) -> Iterator[str]:
    """How a command is called, and a list of what it takes."""
    context = command.context_class(command, info_name=title)
    yield from (".. code-block:: text", "", f"   {title} " + " ".join(command.collect_usage_pieces(context)), "")
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and not parameter.hidden:
            yield from (f"``{record[0]}``", f"   {' '.join(record[1].split())}", "")
