"""What other programs call our arguments: a call with such a name is told the name to write."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

from pnpladmm.tensors import InputError

P = ParamSpec("P")
R = TypeVar("R")

PSF = "the PSF is the second argument, blur="
NOISE = "the noise level is noise=, in [0, 1], such as 5/255"
MEANT = {
    "psf": PSF,
    "kernel": PSF,
    "kernels": PSF,
    "operator": "the operator is the second argument, blur=",
    "physics": "the operator is the second argument, blur=",
    "weights": "kernels and weights are a pair, blur=(kernels, weights)",
    "image": "the picture is the first argument, picture=",
    "img": "the picture is the first argument, picture=",
    "sigma": NOISE,
    "noise_level": NOISE,
    "iters": "the number is iterations=",
    "num_iter": "the number is iterations=",
    "max_iter": "the number is iterations=",
    "n_iter": "the number is iterations=",
    "model": "the network is denoiser=",
    "prior": "the prior is denoiser=",
    "padding": "the border is boundary=",
    "out": "save the result with result.save(path)",
    "verbose": "a bar is shown with progress=True",
}


def with_hints(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses arguments that it does not have in one line that says what to write."""
    known = [p.name for p in inspect.signature(function).parameters.values()]

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        for name in options:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = MEANT.get(name) or (f"write {near[0]}=" if near else f"there are {', '.join(known)}")
                raise InputError(f"{function.__name__} has no argument {name!r}: {hint}")
        return function(*args, **options)

    return call
