"""Denoisers by name, and what they declare about themselves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.denoisers import (
    DENOISERS,
    TotalVariation,
    check_denoiser,
    load_denoiser,
    name_of,
    precision_of,
    promise_of,
    weight_of,
)
from pnpladmm.denoisers.registry import classical_prior
from pnpladmm.registry import Registry
from pnpladmm.tensors import InputError

CLASSICAL = ("tv", "soft", "hard", "tikhonov", "identity")
NETWORKS = ("drunet", "light", "prox-drunet")


def plain(x: Tensor, sigma: float) -> Tensor:
    return x


def test_every_denoiser_of_this_package_has_a_name() -> None:
    assert set(CLASSICAL + NETWORKS) <= set(DENOISERS.names())


@pytest.mark.parametrize("name", [*CLASSICAL, "light"])
def test_a_name_makes_the_denoiser_of_that_name(name: str) -> None:
    denoiser = load_denoiser(name)
    assert name_of(denoiser) == name
    assert denoiser(torch.rand(1, 1, 16, 16), 0.1).shape == (1, 1, 16, 16)


def test_a_network_computes_in_the_precision_it_is_loaded_with() -> None:
    assert precision_of(load_denoiser("light")) == torch.float32
    assert precision_of(load_denoiser("light", precision=torch.float64)) == torch.float64


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"denoiser 'dncnn': choose one of .*light.*tv.* or a weight file"):
        load_denoiser("dncnn")
    check_denoiser("mine.safetensors")  # a file: found or not when it is loaded


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'tv' is registered twice"):
        classical_prior(TotalVariation)


def test_a_plain_callable_promises_nothing_and_has_defaults() -> None:
    assert promise_of(plain) is pl.Promise.NONE
    assert (name_of(plain), precision_of(plain), weight_of(plain)) == ("plain", None, 1.0)


def test_what_a_denoiser_declares_is_read_and_survives_relaxation() -> None:
    light, tv = load_denoiser("light"), TotalVariation(weight=7.0)
    assert (promise_of(tv), weight_of(tv), precision_of(tv)) == (pl.Promise.CONVEX, 7.0, None)
    weaker = pl.relaxed(light, 0.5)
    assert (promise_of(weaker), name_of(weaker), precision_of(weaker)) == (pl.Promise.MMSE, "light", torch.float32)


@pytest.mark.parametrize(
    ("term", "quadratic", "one"),
    [
        (pl.Gaussian(0.1), True, True),
        (pl.WeightedGaussian(torch.ones(4, 4)), True, False),
        (pl.Poisson(1, 1), False, False),
    ],
)
def test_a_data_term_says_whether_it_is_quadratic(term: pl.Gaussian, quadratic: bool, one: bool) -> None:
    y = torch.rand(1, 1, 4, 4)
    p = term.precision_of(y)
    assert (p is not None, term.one_precision) == (quadratic, one)
    if p is not None:
        z = torch.rand(1, 1, 4, 4)
        expected = 0.5 * (p * (z - y) ** 2).sum()
        torch.testing.assert_close(term.value(z, y)[0].float(), expected)


def test_names_are_found_in_any_case_and_with_underscores() -> None:
    """One rule for methods and denoisers; what is registered keeps its own spelling."""
    assert load_denoiser("TV").name == "tv"  # type: ignore[attr-defined]
    assert DENOISERS["Prox_DRUNet"] is DENOISERS["prox-drunet"]
    assert "PRIMAL_DUAL" in pl.METHODS
    assert pl.METHODS["Primal_Dual"] is pl.METHODS["primal-dual"]
    assert "primal dual" not in pl.METHODS
    assert 3 not in pl.METHODS
    names: Registry[int] = Registry("thing", "pnpladmm.no_such_group")
    names.register("A_b")(1)
    names.register("a-b")(2)
    assert (names["A_b"], names["a-b"], names["A-B"]) == (1, 2, 1)  # the exact name comes first
    assert names.names() == ("A_b", "a-b")


class NoiseMap(torch.nn.Module):
    """Like deepinv's DRUNet: the noise level becomes a map beside the picture, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(2, 1, 3, padding=1, bias=False)
        self.layer.weight.data.zero_()
        self.layer.weight.data[0, 0, 1, 1] = 0.5

    def forward(self, x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        level = sigma.view(-1, 1, 1, 1).expand(len(x), 1, *x.shape[-2:])
        found: torch.Tensor = self.layer(torch.cat([x, level], 1))
        return found


@pytest.mark.parametrize("method", ["fast", "ladmm", "ista"])
def test_a_bare_module_gets_its_own_dtype(method: str) -> None:
    y = torch.rand(1, 1, 16, 16, dtype=torch.float64)
    result = pl.restore(y, torch.full((3, 3), 1 / 9), 0.05, method, NoiseMap(), iterations=4)
    assert result.image.dtype is torch.float64
    assert bool(torch.isfinite(result.image).all())
