"""Fact 6: bounds of `||H||^2` from both sides, tight on the paper's kind of blur."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pnpladmm as pl
from conftest import dense
from pnpladmm.blur import common_size, gaussian, motion

BOUNDARIES = ["circular", "replicate", "reflect", "zero", "unknown"]


@pytest.mark.parametrize("signed", [False, True])
def test_bounds_hold_on_random_blurs(signed: bool) -> None:
    """200 small blurs, 100 of each kind, against the dense singular value."""
    rng = np.random.default_rng(1)
    for trial in range(100):
        count, k = rng.integers(1, 4), rng.integers(1, 5, size=2)
        h, w = k + rng.integers(0, 6, size=2)
        draw = rng.standard_normal if signed else rng.random
        weights = draw((count, h, w)) * (rng.random((count, h, w)) < rng.choice([0.3, 1.0]))
        weights[0, 0, 0] = 1
        order = ["convolve-then-weight", "weight-then-convolve"][trial % 2]
        boundary = BOUNDARIES[trial % 5]
        if (boundary, order) == ("unknown", "weight-then-convolve"):
            boundary = "zero"
        operator = pl.SpatiallyVaryingBlur(draw((count, *k)), weights, boundary, order)
        truth = np.linalg.norm(dense(operator, operator.domain), 2) ** 2
        bound = operator.norm_squared()
        assert float(bound.lower) <= truth * (1 + 1e-10)
        assert float(bound.upper) >= truth * (1 - 1e-10)


def paper_like_blur(seed: int, size: int = 128) -> pl.SpatiallyVaryingBlur:
    """Five segments, 33x33 kernels, each mask smoothed with its own kernel, normalised to sum to one."""
    rng = np.random.default_rng(seed)
    kernels = common_size(
        [
            motion(rng.uniform(5, 30), rng.uniform(0, 180), size=33)
            if i % 2
            else gaussian(tuple(rng.uniform(0.8, 3.5, 2)), rng.uniform(0, 180), size=33)
            for i in range(5)
        ]
    )
    y, x = np.mgrid[0:size, 0:size]
    centres = rng.uniform(0, size, (5, 2))
    label = np.argmin([(y - a) ** 2 + (x - b) ** 2 for a, b in centres], axis=0)
    masks = torch.stack([torch.from_numpy((label == i).astype(float)) for i in range(5)])
    smooth = torch.cat(
        [
            pl.SpatiallyVaryingBlur(k[None], torch.ones(1, size, size), "replicate").forward(m[None, None])[0]
            for k, m in zip(kernels, masks, strict=True)
        ]
    ).clamp_min(0)
    return pl.SpatiallyVaryingBlur(kernels, smooth / smooth.sum(0))


@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_tight_on_the_papers_kind_of_blur(seed: int) -> None:
    bound = paper_like_blur(seed).norm_squared()
    assert float(bound.upper) <= 1.02 * float(bound.lower)


def test_the_norm_is_not_one() -> None:
    assert max(float(paper_like_blur(seed).norm_squared().lower) for seed in range(3)) > 1.05


def test_signed_blur_is_bounded_entry_by_entry() -> None:
    """A PSFEx-like model: a constant kernel plus signed changes of width and shape, polynomial weights."""
    y, x = np.mgrid[-1:1:32j, -1:1:32j]
    base, wider, narrower = gaussian(1.5, size=11), gaussian(1.8, size=11), gaussian((1.8, 1.3), 45, size=11)
    kernels = torch.stack([base, wider - base, narrower - base])
    operator = pl.SpatiallyVaryingBlur(kernels, np.stack([np.ones_like(x), x, y]))
    truth = np.linalg.norm(dense(operator, operator.domain), 2) ** 2
    bound = operator.norm_squared()
    assert truth <= float(bound.upper) <= 1.1 * truth
    separate = pl.SpatiallyVaryingBlur(operator.kernels[0, :, 0].abs(), operator.weights[0, :, 0].abs())
    assert float(separate.norm_squared().lower) > 1.2 * truth


def test_a_bound_for_each_picture() -> None:
    kernels = torch.rand(2, 1, 3, 3, dtype=torch.float64)
    weights = torch.rand(2, 1, 9, 9, dtype=torch.float64)
    both = pl.SpatiallyVaryingBlur(kernels, weights).norm_squared()
    for b in range(2):
        one = pl.SpatiallyVaryingBlur(kernels[b], weights[b])
        truth = np.linalg.norm(dense(one, one.domain), 2) ** 2
        assert float(both.lower[b]) <= truth <= float(both.upper[b]) <= 1.02 * truth
