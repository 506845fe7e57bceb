"""Step lengths of conjugate gradient that are decided for a whole picture, and the regions of its preconditioner."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.blur import gaussian
from pnpladmm.operators.division import Division, partition
from pnpladmm.operators.misfit import Point, misfit, worst_places
from pnpladmm.scale.decisions import Decisions
from pnpladmm.scale.pace import FILE, Pace, keep, kept
from pnpladmm.solvers.side_by_side import Part, find_step_lengths
from pnpladmm.solvers.step_lengths import descend_by
from pnpladmm.tiling.fast import Whole
from pnpladmm.tiling.geometry import plan_tiles
from pnpladmm.tiling.samples import sample_places
from pnpladmm.tiling.seams import OtherSteps, Overlaps, measure_seams
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
    lengths, _ = find_step_lengths(own, [Part(given, torch.ones(1, 1))])
    if channels > 1:
        assert [len(one) for one in lengths] == torch.as_tensor(own.cg_iterations).amax((0, 2)).tolist()
    whole = pl.solve(given, own, tolerance=0).image
    taken = pl.solve(given, replace(own, step_lengths=lengths), tolerance=0).image
    torch.testing.assert_close(taken, whole, rtol=0, atol=1e-12)


def test_a_picture_given_twice_has_the_same_steps():
    given = problem()
    own = method(given)
    one, same = find_step_lengths(own, [Part(given, torch.ones(1, 1))])
    two, left = find_step_lengths(own, [Part(given, torch.ones(1, 1)), Part(given, torch.ones(1, 1), stays=False)])
    for alone, *others in zip(one, same, two, left, strict=True):
        for together in others:
            torch.testing.assert_close(together, alone, rtol=1e-12, atol=0)


def test_steps_that_lead_away_are_given_up():
    given = problem()
    own = method(given)
    lengths, _ = find_step_lengths(own, [Part(given, torch.ones(1, 1))])
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


def test_a_needed_point_is_in_the_middle_of_a_sample_unless_another_one_has_it():
    grid = plan_tiles((1100, 900), 400, 64, 24)
    usual = sample_places(grid)
    needed = [Point(place, (0.0, 0.5)) for place in ((0.3, 0.3), (0.31, 0.3), (1.0, 0.65), (0.0, 0.0))]
    places = sample_places(grid, needed=needed)
    assert len(places) == len(usual) + 2
    inside, border = places[-2:]
    assert inside.rows[0] + 64 < 330 < inside.rows[1] - 64
    assert border.rows[1] == 1100
    assert set(inside.share.unique().tolist()) == {0.0, 900 / 2 / 128}  # for the half of the row that is like it
    assert set(border.share.unique().tolist()) == {0.0, 900 / 2 / 128}
    assert sum(float(place.share.sum()) for place in places) == pytest.approx(1100 * 900)


def sharp_in_a_corner() -> pl.SpatiallyVaryingBlur:
    """Wide kernels, but for the right border in the middle."""
    kernels = torch.stack([gaussian(width, 0, 17) for width in (2.4, 2.5, 2.6, 0.6)])
    y, x = torch.meshgrid(torch.linspace(0, 1, 600), torch.linspace(0, 1, 400), indexing="ij")
    sharp = torch.exp(-((y - 0.5) ** 2 + (x - 1) ** 2) / 0.005)
    return pl.SpatiallyVaryingBlur(kernels, torch.stack([*3 * [(1 - sharp) / 3], sharp]), "unknown")


def test_the_filters_fit_worst_where_a_kernel_is_much_sharper_than_the_others():
    blur = sharp_in_a_corner()
    weights = blur.weights[0, :, 0, ::12, ::12].double()
    division = Division.of(weights)
    regions = division.regions(weights).flatten(1).T
    found = misfit(blur.kernels[0], division.gram, weights.flatten(1).T, regions).view(weights.shape[-2:])
    assert float(found.amax()) > 5 * float(found.amin())
    [worst] = worst_places(found)
    assert worst.place == pytest.approx((0.5, 1.0), abs=0.05)
    assert 0 < worst.extent[0] < 0.2
    assert worst_places(torch.ones(5, 5)) == []


def test_a_place_that_the_samples_do_not_see_does_not_lead_tiles_astray(monkeypatch):
    monkeypatch.setattr("pnpladmm.solvers.step_lengths.ASTRAY", 1e9)  # no tile takes steps of its own
    blur = sharp_in_a_corner()
    x = torch.rand(1, 1, *blur.scene, generator=torch.Generator().manual_seed(0))
    sigma = torch.tensor([0.004])
    y = blur.forward(x) + 0.004 * torch.randn(1, 1, *blur.observed, generator=torch.Generator().manual_seed(1))
    given = pl.Problem(y, blur, pl.Gaussian(sigma))
    own = replace(pl.Annealed.for_noise(pl.load_denoiser("light"), given, sigma, calls=3), denoiser=smoothed)
    grid = plan_tiles(blur.scene, 160, 24, 8)
    paced = Whole(given, blur, own, 3, 0.0).paced(grid)
    undivided = pl.solve(given, own, tolerance=0).image
    together = paced.solve((0, blur.scene[0]), (0, blur.scene[1])).image
    # The steps of the samples do as well as those of the whole picture.
    fits = [float((y - blur.forward(one)).square().mean()) for one in (together, undivided)]
    assert fits[0] == pytest.approx(fits[1], rel=0.01)


@pytest.mark.parametrize("channels", [1, 3])
def test_filters_of_a_part_know_the_precision_of_the_whole(channels):
    given = problem(1, channels)
    p = torch.full((1, channels, *SIZE), 4.0, dtype=torch.float64)
    p[..., : SIZE[1] // 2] = 0
    p[:, -1, :8] = 0  # channels differ
    whole = Whole(replace(given, data_term=pl.WeightedGaussian(p)), given.operator, method(given), 4, 0.0)
    v = partition(given.operator.weights.double())[0][0, :, 0]
    means = torch.einsum("qhw,chw->qc", v, p[0]) / v.sum((-2, -1))[:, None]
    whole = replace(whole, division=whole._divided())
    a = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    for rows, columns in (((0, 40), (0, 40)), ((16, 56), (24, 64))):
        part = whole.problem_of(rows, columns)
        filters = part.operator.preconditioner(part.precision_for("fast"), a).filters
        torch.testing.assert_close(torch.stack([one.precision[0, 0, :, 0, 0] for one in filters]), means)


def test_the_statement_has_the_difference_that_other_steps_make_where_the_picture_is_seen():
    grid = plan_tiles((120, 160), 80, 16, 8)

    def constant(value: float) -> Callable[[tuple[int, int], tuple[int, int]], Tensor]:
        return lambda rows, columns: torch.full((1, rows[1] - rows[0], columns[1] - columns[0]), value)

    overlaps = Overlaps(((16, 104), (16, 144)))
    usual = measure_seams(constant(0.5), constant(0.5), grid, overlaps)
    assert (usual.largest, usual.places) == (0, 2)
    for place in (None, (0, 0), (119, 159), (60, 80)):
        other = OtherSteps(constant(0.6), 0.5, place)
        found = measure_seams(constant(0.5), constant(0.5), grid, overlaps, other)
        assert (found.largest, found.places) == (pytest.approx(0.05 * 255, rel=1e-5), 3)


def test_a_pace_is_kept_for_its_noise(tmp_path):
    decisions = Decisions((9, 9), 3, 1.0, 0.1, False, (0.0, 1.0), (3, 3))
    division = Division(1, torch.rand(1, 2, 2, dtype=torch.float64), precision=torch.rand(1, 1, 3, dtype=torch.float64))
    steps = [tuple(torch.rand(n, 2, 1, 3).double() for n in (4, 0)) for _ in range(2)]
    given = Pace(division, *steps, 0.5, (3, 7))
    keep(tmp_path, decisions, given)
    found = kept(tmp_path, decisions)
    assert found is not None
    torch.testing.assert_close(found.division.gram, given.division.gram, rtol=0, atol=0)
    torch.testing.assert_close(found.division.precision, given.division.precision, rtol=0, atol=0)
    assert (found.weight, found.place) == (0.5, (3, 7))
    for one, other in zip(found.lengths + found.fewer, given.lengths + given.fewer, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert kept(tmp_path, replace(decisions, noise=0.2)) is None
    (tmp_path / FILE).write_text("{")
    assert kept(tmp_path, decisions) is None
