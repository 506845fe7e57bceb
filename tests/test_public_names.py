"""Every public name says what it takes and returns, with an example that runs (the doctests run with the tests)."""

from __future__ import annotations

import inspect

import pytest

import pnpladmm as pl

NAMES = [name for name in pl.__all__ if callable(getattr(pl, name))]


@pytest.mark.parametrize("name", NAMES)
def test_docstrings_are_complete(name: str) -> None:
    thing = getattr(pl, name)
    text = inspect.getdoc(thing) or ""
    assert "Examples\n--------" in text, "an example is missing"
    assert ">>> " in text
    if inspect.isclass(thing):
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
