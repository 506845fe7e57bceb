"""Blur from stars and beads: the PSF of a simulated field, its centre, what is left out and why, stacks, bad input."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import pnpladmm as pl
from pnpladmm.estimate.terms import DECAY, Terms, regress
from pnpladmm.workshop.bench.star_fields import StarField, random_stars

pytest.importorskip("photutils")
FIELD = StarField(size=(224, 256), coma=1.5)
ROUND = StarField(size=(160, 160), coma=0.0, ellipticity=0.0, growth=0.0)


def grid_of_stars(size: tuple[int, int], step: int = 32, seed: int = 0) -> np.ndarray:
    """Places on a lattice, each off its pixel by a fraction."""
    rng = np.random.default_rng(seed)
    x, y = (np.arange(step // 2, n - step // 2 + 1, step) for n in (size[1], size[0]))
    return np.stack(np.meshgrid(x, y), -1).reshape(-1, 2) + rng.uniform(-0.5, 0.5, (len(x) * len(y), 2))


@cache
def frame() -> np.ndarray:
    places, fluxes = random_stars(FIELD.size, 90, 2e5, 3e3, seed=3)
    return FIELD.frame(places, fluxes, noise=2.0, gain=0.25)


@cache
def estimated() -> pl.Blur:
    return pl.estimate_blur(frame(), "points")


def error(blur: pl.Blur, field: StarField, x: int, y: int) -> float:
    kernel = blur.psf_at(y, x)[0].numpy()
    true = field.kernel(x, y, kernel)
    return float(np.linalg.norm(kernel - true) / np.linalg.norm(true))


def reasons_of(blur: pl.Blur) -> dict[tuple[int, int], str]:
    assert blur.estimate is not None
    return {(round(row[0]), round(row[1])): row[-1] for row in blur.estimate.tables["points"].rows}


def test_higher_terms_are_expected_to_be_smaller() -> None:
    terms = Terms("polynomial", 3, (101, 101))
    assert terms.changes[0] == np.inf
    np.testing.assert_allclose(terms.changes[1:], [1, 1, *[DECAY] * 3, *[DECAY**2] * 4], rtol=1e-12)
    rng = np.random.default_rng(0)
    places, corner = rng.uniform(20, 80, (14, 2)), np.array([[0.0, 100.0]])
    values, weights = 3 + 0.02 * rng.standard_normal((14, 1)), np.full(14, 1 / 0.02**2)
    free, held = (
        float((terms.at(corner) @ regress(terms.at(places), values, weights, sizes))[0, 0])
        for sizes in (np.inf, 0.2 * terms.changes)
    )
    assert abs(held - 3) < 0.2 * abs(free - 3)
    exact = regress(terms.at(places), (terms.at(places) @ np.arange(10.0))[:, None], np.ones(14))
    np.testing.assert_allclose(exact[:, 0], np.arange(10.0), atol=1e-7)  # without expectations: least squares


def test_the_psf_of_a_field_that_changes() -> None:
    blur = estimated()
    errors = [error(blur, FIELD, x, y) for x in (20, 128, 235) for y in (20, 112, 203)]
    assert np.mean(errors) < 0.02
    assert max(errors) < 0.03
    corners = blur.psf_at(10, 10)[0].numpy(), blur.psf_at(10, 245)[0].numpy()
    assert np.linalg.norm(corners[0] - corners[1]) > 0.15 * np.linalg.norm(corners[0]), "the field does change"


def test_it_says_how_right_it_is() -> None:
    blur = estimated()
    errors = [error(blur, FIELD, x, y) for x in range(10, 250, 40) for y in range(10, 220, 40)]
    true = float(np.sqrt(np.mean(np.square(errors))))
    assert blur.uncertainty is not None
    assert 0.5 * true < blur.uncertainty < 2 * true
    assert blur.estimate is not None
    assert 0.85 < (blur.estimate.residual or 0) < 1.15
    assert blur.estimate.confidence.min() > 0.5
    assert not blur.estimate.warnings


def test_kernels_are_centred_and_keep_brightness() -> None:
    places = grid_of_stars(ROUND.size)
    blur = pl.estimate_blur(ROUND.frame(places, np.full(len(places), 1e5), noise=2.0), "points", side=21, field="one")
    assert blur.kernel_size == (21, 21)
    kernel = blur.psf_at(80, 80)[0].numpy()
    offset = np.arange(21) - 10
    assert abs((kernel * offset[None, :]).sum()) < 0.02
    assert abs((kernel * offset[:, None]).sum()) < 0.02
    assert kernel.sum() == pytest.approx(1, abs=1e-6)
    assert kernel.min() >= 0
    # Against the truth without any shift, which half a pixel would spoil by 30 %.
    true = ROUND.psf(80, 80, offset[None, :], offset[:, None])
    assert np.linalg.norm(kernel - true / true.sum()) < 0.01 * np.linalg.norm(true)


def test_one_psf_where_nothing_changes() -> None:
    places = grid_of_stars(ROUND.size)
    blur = pl.estimate_blur(ROUND.frame(places, np.full(len(places), 3e4), noise=3.0), "points")
    assert len(blur.kernels) == 1
    assert any("one PSF chosen by cross-validation" in note for note in blur.notes)


def test_what_is_left_out_has_a_reason() -> None:
    places = grid_of_stars(ROUND.size)
    fluxes = np.full(len(places), 5e4)
    fluxes[6] = 6e5  # saturates
    blended = places[8] + (4.7, 0.0)
    near_border = np.array([3.0, 80.0])
    faint = (places[12] + places[13]) / 2
    picture = ROUND.frame(
        np.concatenate([places, [blended, near_border, faint]]), np.append(fluxes, [4e4, 5e4, 500.0]), noise=4.0
    )
    picture[96:112, 110:118] += 300.0  # a patch that is no point
    counts = picture.clip(0, 20000).astype(np.uint16)
    why = reasons_of(pl.estimate_blur(counts, "points", saturation=20000.0, field="one"))

    def reason(place: np.ndarray) -> str:
        near = min(why, key=lambda p: np.hypot(p[0] - place[0], p[1] - place[1]))
        assert np.hypot(near[0] - place[0], near[1] - place[1]) < 3
        return why[near]

    assert reason(places[6]) == "saturated"
    assert reason(places[8]).startswith("blended")
    assert reason(near_border).startswith("border")
    assert reason(faint).startswith("too faint")
    assert reason(places[0]) == ""


def test_places_from_a_table(tmp_path: Path) -> None:
    places = grid_of_stars(ROUND.size)
    picture = ROUND.frame(places, np.full(len(places), 5e4), noise=4.0)
    wanted = places[[6, 7, 11, 12, 16]].round()  # a pixel is near enough
    table = tmp_path / "stars.csv"
    table.write_text("X_IMAGE,Y_IMAGE\n" + "\n".join(f"{x + 1},{y + 1}" for x, y in wanted))
    blur = pl.estimate_blur(picture, "points", stars=table, field="one")
    used = sorted(place for place, why in reasons_of(blur).items() if not why)
    assert len(used) == 5
    assert all(np.hypot(*(np.array(used) - p).T).min() < 2 for p in wanted)
    assert set(reasons_of(blur).values()) - {""} == {"not in the list"}
    with pytest.raises(pl.InputError, match="all 2 places lie outside"):
        pl.estimate_blur(picture, "points", stars=np.array([[-5.0, 3.0], [900.0, 2.0]]))


def test_neighbours_do_not_leak_into_the_psf() -> None:
    places = grid_of_stars(ROUND.size)
    beside = places + np.array([7.0, 5.0])
    picture = ROUND.frame(np.concatenate([places, beside]), np.repeat([5e4, 1.5e4], len(places)), noise=2.0)
    blur = pl.estimate_blur(picture, "points", field="one")
    assert error(blur, ROUND, 80, 80) < 0.015


def test_a_stack_of_beads_in_counts(tmp_path: Path) -> None:
    """Three planes, the middle one in focus, on a camera's offset of 400 counts."""
    import tifffile

    places = grid_of_stars((128, 128), step=24)
    planes = [
        StarField((128, 128), fwhm, 4.0, 0.0, 0.0, 0.0).frame(places, np.full(len(places), 4e4), 5.0, 400.0, 1.0)
        for fwhm in (5.0, 3.5, 5.0)
    ]
    tifffile.imwrite(tmp_path / "beads.tif", np.stack(planes).round().astype(np.uint16), photometric="minisblack")
    blur = pl.estimate_blur(tmp_path / "beads.tif", "points", field="one")
    assert any(note.startswith("page 1 of 3") for note in blur.notes)
    assert error(blur, StarField((128, 128), 3.5, 4.0, 0.0, 0.0, 0.0), 64, 64) < 0.02
    wide = pl.estimate_blur(tmp_path / "beads.tif", "points", page=0, field="one")
    assert float(wide.psf_at(64, 64).max()) < 0.6 * float(blur.psf_at(64, 64).max())


def test_one_star_is_enough_and_says_so() -> None:
    picture = ROUND.frame(np.array([[80.3, 79.8]]), np.array([2e5]), noise=3.0)
    blur = pl.estimate_blur(picture, "points")
    assert error(blur, ROUND, 80, 80) < 0.05
    assert blur.estimate is not None
    assert any("only 1 point could be used" in warning for warning in blur.estimate.warnings)
    with pytest.raises(pl.InputError, match="too few for it: use one"):
        pl.estimate_blur(picture, "points", field="polynomial")


@pytest.mark.parametrize(
    ("picture", "words"),
    [
        (np.full((64, 64), 0.3), "no stars or beads were found"),
        (np.random.default_rng(0).normal(100, 5, (96, 96)), "no stars or beads were found"),
        (np.full((64, 64), 255, np.uint8), "no pixel has data below saturation"),
    ],
    ids=["flat", "noise", "white"],
)
def test_pictures_without_points(picture: np.ndarray, words: str) -> None:
    with pytest.raises(pl.InputError, match=words):
        pl.estimate_blur(picture, "points")


def test_hot_pixels_are_no_stars() -> None:
    rng = np.random.default_rng(0)
    picture = rng.normal(100, 2, (96, 96))
    picture[rng.integers(5, 90, 30), rng.integers(5, 90, 30)] += 2000
    with pytest.raises(pl.InputError, match=r"no stars or beads|single pixels"):
        pl.estimate_blur(picture, "points")


def test_text_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("not a picture")
    with pytest.raises(pl.InputError, match=r"a\.png"):
        pl.estimate_blur(tmp_path / "a.png", "points")


def test_from_the_command_line_to_a_restoration(run, tmp_path: Path) -> None:
    places = grid_of_stars((128, 128), step=24)
    field = StarField((128, 128), 3.0, 3.0, 0.0, 0.0, 0.0)
    counts = field.frame(places, np.full(len(places), 4e4), 5.0).round().astype(np.uint16)
    pl.write_picture(tmp_path / "field.tif", pl.Picture.from_array(counts))
    code, out, err = run("estimate", "field.tif", "--points", "auto", "-o", "field.npz", "--report", "--json")
    assert code == 0, err
    assert '"way": "points"' in out
    assert (tmp_path / "field.points.csv").read_text().startswith("x,y,flux,fwhm,used,reason")
    page = (tmp_path / "field.npz.report" / "report.html").read_text()
    assert "chosen by cross-validation" in page
    code, _, err = run("restore", "field.tif", "--blur", "field.npz", "-o", "sharp.tif", "--denoiser", "tv")
    assert code == 0, err
    assert "estimated (points)" in err or (tmp_path / "sharp.tif").exists()
    code, _, err = run("estimate", "field.tif", "-o", "field.npz")
    assert code == 2
    assert "no way is given" in err
