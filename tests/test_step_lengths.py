"""Step lengths of conjugate gradient that are decided for a whole picture, and the regions of its preconditioner."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.operators.division import Division, partition
from pnpladmm.scale.decisions import Decisions
from pnpladmm.scale.pace import FILE, Pace, keep, kept
from pnpladmm.solvers.side_by_side import Part, find_step_lengths
from pnpladmm.solvers.step_lengths import descend_by
from pnpladmm.tiling.geometry import plan_tiles
from pnpladmm.tiling.samples import sample_places
from pnpladmm.tiling.window import window_for_scene
from pnpladmm.workshop.bench.inputs import make_kernels, make_weights

SIZE = (48, 56)


def smoothed(x: Tensor, sigma: object) -> Tensor:
    return 0.8 * x + 0.2 * torch.nn.functional.avg_pool2d(x, 3, 1, 1)


def problem(pictures: int = 1, channels: int = 3) -> pl.Problem:
    cpu = torch.device("cpu")
    weights = make_weights("dense", 3, SIZE, cpu)
    blur = pl.SpatiallyVaryingBlur(make_kernels(3, 9), weights, "unknown")
    x = torch.rand(pictures, channels, *blur.scene, dtype=torch.float64)
    x[:, :1] *= 3  # planes of different strength
    y = blur.forward(x) + 0.01 * torch.randn(pictures, channels, *SIZE, dtype=torch.float64)
    return pl.Problem(y, blur, pl.Gaussian(torch.full((pictures,), 0.01, dtype=torch.float64)))


def method(given: pl.Problem) -> pl.Annealed:
    sigma = torch.full((given.pictures,), 0.01, dtype=torch.float64)
    found = pl.Annealed.for_noise(pl.load_denoiser("light"), given, sigma, calls=4)
    assert isinstance(found, pl.Annealed)
    return replace(found, denoiser=smoothed)


@pytest.mark.parametrize(("pictures", "channels"), [(1, 3), (2, 3), (2, 1)])
def test_of_a_single_part_they_are_those_of_conjugate_gradient(pictures, channels):
    given = problem(pictures, channels)
    own = method(given)
    lengths = find_step_lengths(own, [Part(given, torch.ones(1, 1))])
    if channels > 1:
        assert [len(one) for one in lengths] == torch.as_tensor(own.cg_iterations).amax((0, 2)).tolist()
    whole = pl.solve(given, own, tolerance=0).image
    taken = pl.solve(given, replace(own, step_lengths=lengths), tolerance=0).image
    torch.testing.assert_close(taken, whole, rtol=0, atol=1e-12)


def test_a_picture_given_twice_has_the_same_steps():
    given = problem()
    own = method(given)
    one = find_step_lengths(own, [Part(given, torch.ones(1, 1))])
    two = find_step_lengths(own, [Part(given, torch.ones(1, 1)), Part(given, torch.ones(1, 1))])
    for alone, together in zip(one, two, strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-12, atol=0)


def test_steps_that_lead_away_are_given_up():
    given = problem()
    own = method(given)
    lengths = find_step_lengths(own, [Part(given, torch.ones(1, 1))])
    wrong = tuple(torch.stack([one[:, 0], 9 * one[:, 1]], 1) for one in lengths)
    step = own.data_step(given, 0)
    x = own.init(given).x
    system = step.system(torch.ones(1, 1, 1, 1, dtype=torch.float64), x)
    assert descend_by(wrong[0], system.matrix, step.gradient(x), system.precondition) is None
    whole = pl.solve(given, own, tolerance=0).image
    torch.testing.assert_close(pl.solve(given, replace(own, step_lengths=wrong), tolerance=0).image, whole)


@pytest.mark.parametrize("kind", ["one region", "segments", "hats"])
def test_the_regions_of_a_part_are_those_of_the_whole(kind):
    count = 20 if kind == "hats" else 4
    weights = make_weights("segments" if kind == "segments" else "dense", count, (60, 80), torch.device("cpu"))
    blur = pl.SpatiallyVaryingBlur(make_kernels(count, 5), weights)
    division = (Division.of(weights),)
    assert division[0].tiles == {"one region": 1, "segments": 0, "hats": 3}[kind]
    whole, gram = partition(blur.weights.double(), division)
    window = window_for_scene(blur, (0, 24), (0, 32), division)
    (rows, columns), kept_kernels = window.observed_span, window.weights.shape[1]
    part, own = partition(window.weights.double(), window.division)
    inside = whole[..., slice(*rows), slice(*columns)]
    used = inside.flatten(2).any(-1)[0]
    assert kept_kernels < count or kind != "segments"
    torch.testing.assert_close(part, inside[:, used] if kind == "segments" else inside)
    torch.testing.assert_close(own.sum(), gram[:, used].sum() if kind == "segments" else gram.sum())


def top_eigenvalue(operator: pl.SpatiallyVaryingBlur) -> float:
    """Of `M^-1 A` by power iteration."""
    x = torch.randn(1, 1, *operator.scene, dtype=torch.float64)
    a = torch.full((1, 1, 1, 1), 1e-3, dtype=torch.float64)
    inverse = operator.preconditioner(torch.tensor(1.0, dtype=torch.float64), a)
    for _ in range(100):
        x = x / x.norm()
        y = inverse(operator.adjoint(operator.forward(x)) + a * x)
        found, x = float((x * y).sum()), y
    return found


def test_a_tile_has_no_modes_that_the_picture_does_not_have():
    """Steps that suit the picture would lead away from the solution there."""
    blur = pl.SpatiallyVaryingBlur(torch.full((1, 1, 5), 0.2), torch.ones(1, 60, 70), "unknown")
    division = (Division.of(blur.weights[0, :, 0]),)
    windows = [window_for_scene(blur, (16, 48), (24, 64), known) for known in (None, division)]
    alone, known = (top_eigenvalue(window) for window in windows)
    assert known < 1.02 * top_eigenvalue(window_for_scene(blur, (0, 60), (0, 74), division))
    assert alone > 1.1 * known


@pytest.mark.parametrize("size", [(700, 900), (303, 1001), (100, 2000)])
def test_samples_stand_for_every_pixel_and_not_for_their_own_ends(size):
    places = sample_places(plan_tiles(size, 400, 64, 24))
    assert sum(float(place.share.sum()) for place in places) == pytest.approx(size[0] * size[1])
    for place in places:
        for axis, ((first, last), length) in enumerate(zip((place.rows, place.columns), size, strict=True)):
            assert 0 <= first < last <= length
            assert (first % 8, (length - last) % 8) == (0, 0)
            line = place.share.sum(1 - axis)
            assert bool(line[0] > 0) is (first == 0)
            assert bool(line[-1] > 0) is (last == length)
    round_trip = sample_places(plan_tiles(size, 200, 24, 8, True), round_trip=True)
    assert sum(float(place.share.sum()) for place in round_trip) == pytest.approx(size[0] * size[1])


def test_a_pace_is_kept_for_its_noise(tmp_path):
    decisions = Decisions((9, 9), 3, 1.0, 0.1, False, (0.0, 1.0), (3, 3))
    given = Pace(
        Division(1, torch.rand(1, 2, 2, dtype=torch.float64)), (torch.rand(4, 2, 1, 3), torch.rand(0, 2, 1, 3))
    )
    given = replace(given, lengths=tuple(one.double() for one in given.lengths))
    keep(tmp_path, decisions, given)
    found = kept(tmp_path, decisions)
    assert found is not None
    torch.testing.assert_close(found.division.gram, given.division.gram, rtol=0, atol=0)
    for one, other in zip(found.lengths, given.lengths, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert kept(tmp_path, replace(decisions, noise=0.2)) is None
    (tmp_path / FILE).write_text("{")
    assert kept(tmp_path, decisions) is None
