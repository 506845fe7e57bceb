"""Pages in HTML from jinja2 templates; every page needs no other file."""

from __future__ import annotations

import base64
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pnpladmm.tensors import InputError

if TYPE_CHECKING:
    from jinja2 import Environment

KINDS = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}


def render(template: str, package: str = "pnpladmm.report", **values: Any) -> str:
    """Fill in a template.

    Parameters
    ----------
    template : str
        Its file name, such as `run.html`.
    package : str
        The package whose folder `templates` holds it. Templates of `pnpladmm.report` are found from every package:
        `{% extends "base.html" %}` gives a page its head, its style and the block `content`; `{% import "parts.html"
        as parts %}` gives tables and figures.
    **values
        What the template shows. Text is escaped.

    Returns
    -------
    str
        The page.

    Examples
    --------
    >>> "a &lt; b" in render("base.html", title="a < b")
    True
    """
    return _environment(package).get_template(template).render(**values)


def data_url(content: bytes | Path, kind: str | None = None) -> str:
    """A picture as a URL that contains all of it. `kind` is its MIME type; for bytes the default is PNG."""
    if isinstance(content, Path):
        kind = kind or KINDS.get(content.suffix.lower())
        if kind is None:
            raise InputError(f"{content}: give {', '.join(KINDS)} for a page")
        content = content.read_bytes()
    return f"data:{kind or 'image/png'};base64,{base64.b64encode(content).decode()}"


def number(value: object, digits: int = 6) -> str:
    """A float with this number of significant digits, anything else as text; empty for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.{digits}g}" if math.isfinite(value) else str(value)
    return str(value)


def fixed(value: float | None, digits: int, missing: str = "") -> str:
    """A number with this number of digits after the point; `missing` for None."""
    return missing if value is None else f"{value:.{digits}f}"


@cache
def _environment(package: str) -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loaders = [PackageLoader(name) for name in dict.fromkeys((package, "pnpladmm.report"))]
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"data_url": data_url, "number": number, "fixed": fixed}
    return environment
