"""Every public name says what it takes and returns, with an example that runs (the doctests run with the tests)."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from pathlib import Path

import pytest

import pnpladmm as pl

ROOT = Path(__file__).parent.parent
NAMES = list(pl.__all__)


def described(kind: type, name: str) -> bool:
    """Whether a field of a class, or of one that it inherits from, has a text: below it, or in the class's own."""
    for base in kind.__mro__[:-1]:
        if not base.__module__.startswith("pnpladmm"):
            continue
        text = inspect.getdoc(base) or ""
        below = rf'^ +{name}: [^\n]*\n +"""'
        if re.search(below, inspect.getsource(base), re.MULTILINE) or re.search(rf"^{name} : |`{name}`", text, re.M):
            return True
    return False


def check_class(kind: type, text: str) -> None:
    """The arguments of a class are in its Parameters; of classes that are only given out, each field has a text."""
    if issubclass(kind, Enum | Exception) or inspect.isabstract(kind):
        return
    arguments = [
        p for p in inspect.signature(kind).parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if "Parameters\n----------" in text:
        section = text.split("Parameters\n----------")[1]
        missing = [p.name for p in arguments if not re.search(rf"\b{p.name}\b", section)]
    else:
        missing = [p.name for p in arguments if not described(kind, p.name)]
    assert not missing, f"{', '.join(missing)}: not described"


def test_a_missing_text_is_found() -> None:
    """The check itself: a class and a function that lack something do not pass."""

    class Half:
        """One.

        Parameters
        ----------
        a : int
            Described.

        Examples
        --------
        >>> 1
        1
        """

        def __init__(self, a: int, b: int) -> None: ...

    with pytest.raises(AssertionError, match="b: not described"):
        check_class(Half, inspect.getdoc(Half) or "")
    with pytest.raises(AssertionError, match="a, b: not described"):
        check_class(Half, "Nothing.")


def test_every_public_name_is_in_the_reference() -> None:
    listed = set(re.findall(r"^ +(\w+)$", (ROOT / "docs" / "api" / "python.rst").read_text(), re.MULTILINE))
    assert set(pl.__all__) <= listed, f"docs/api/python.rst lacks {', '.join(sorted(set(pl.__all__) - listed))}"


@pytest.mark.parametrize("name", NAMES)
def test_docstrings_are_complete(name: str) -> None:
    thing = getattr(pl, name)
    text = inspect.getdoc(thing) or ""
    assert "Examples\n--------" in text, "an example is missing"
    assert ">>> " in text
    if not callable(thing):
        return
    if inspect.isclass(thing):
        check_class(thing, text)
        return
    signature = inspect.signature(thing)
    if signature.parameters:
        assert "Parameters\n----------" in text, "parameters are missing"
        described = text.split("Parameters\n----------")[1]
        for parameter in signature.parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD:  # described by their own names
                assert parameter.name in described, f"parameter {parameter.name} is missing"
    if signature.return_annotation not in (None, "None"):
        assert "Returns\n-------" in text, "what it returns is missing"


def test_all_names_exist_and_are_sorted() -> None:
    assert all(hasattr(pl, name) for name in pl.__all__)
    assert sorted(pl.__all__) == sorted(set(pl.__all__))
