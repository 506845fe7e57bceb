"""The command line: reads options, calls the library, writes files and prints. It decides nothing."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer

from pnpladmm.allocator import keep_memory
from pnpladmm.cli import blurs, demo, estimate, restore, serve
from pnpladmm.tensors import InputError, is_out_of_memory, one_line

app = typer.Typer(
    name="pnpladmm",
    help="Restore pictures whose blur is known, also where it changes over the picture: Plug & Play linearized ADMM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from pnpladmm import __version__

        typer.echo(__version__)
        raise typer.Exit


for _group in (demo.app, restore.app, estimate.app, blurs.app, serve.app):
    app.add_typer(_group)
for _point in entry_points(group="pnpladmm.commands"):
    app.add_typer(_point.load(), name=_point.name)


def main() -> None:
    """Run the command line: bad input, and a machine that is too small, are one line and exit code 2, no traceback."""
    keep_memory()
    try:
        app()
    except InputError as error:
        typer.echo(f"pnpladmm: {one_line(str(error))}", err=True)
        sys.exit(2)
    except OSError as error:
        words = f"{error.filename or ''}: {error.strerror or error}"
        typer.echo(f"pnpladmm: {one_line(words)}", err=True)
        sys.exit(2)
    except (MemoryError, RuntimeError, ImportError) as error:
        if not is_out_of_memory(error):
            raise
        typer.echo("pnpladmm: not enough memory: take smaller pictures, or close other programs", err=True)
        sys.exit(2)
