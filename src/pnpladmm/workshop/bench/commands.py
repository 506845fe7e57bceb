"""`pnpladmm bench ...`: parses, calls, prints."""

from __future__ import annotations

import typer

app = typer.Typer(help="bench", pretty_exceptions_enable=False)


@app.callback(
    invoke_without_command=True,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def _run(context: typer.Context) -> None:
    from pnpladmm.workshop.bench.__main__ import main

    raise typer.Exit(main(context.args))
