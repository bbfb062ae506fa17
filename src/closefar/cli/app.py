"""The commands, one module each; what they need is imported when they run, so that help is quick."""

from __future__ import annotations

import typer

from closefar.cli.paper import paper

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
app.command()(paper)


@app.callback()
def closefar() -> None:
    """Learn a distance from noisy close/far labels."""
