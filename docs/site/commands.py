"""The command line as sphinx-click wants it."""

import typer

from pnpladmm.cli import app

command = typer.main.get_command(app)
