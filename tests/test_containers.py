"""Pictures of xarray and astropy go in and come out with all that they say; results show themselves in notebooks."""

from __future__ import annotations

import re
import sys
import types
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch
from astropy.io import fits
from astropy.nddata import CCDData, InverseVariance, NDData, StdDevUncertainty, UnknownUncertainty, VarianceUncertainty
from astropy.wcs import WCS

import pnpladmm as pl
from conftest import picture

SIZE = 24
PSF = np.outer([1, 2, 1], [1, 3, 1]) / 20.0
GREY = np.clip(picture(SIZE)[0, 0].numpy() + 0.02 * np.random.default_rng(0).standard_normal((SIZE, SIZE)), 0.05, 0.95)
COLOUR = np.stack([GREY, 0.8 * GREY, 0.5 * GREY + 0.1], -1)


def of(given: Any, blur: Any = PSF, **options: Any) -> pl.Restoration:
    return pl.restore(given, blur, **{"denoiser": "tv", "iterations": 3, **options})


@pytest.fixture
def coordinates() -> WCS:
    world = WCS(naxis=2)
    world.wcs.ctype = ["RA---TAN", "DEC--TAN"]
    world.wcs.cdelt = [-0.0002, 0.0002]
    world.wcs.crval = [10.0, 20.0]
    return world


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("uint8", (SIZE, SIZE, 3)), ("uint16", (3, SIZE, SIZE)), ("float32", (SIZE, SIZE)), ("float64", (SIZE, SIZE, 3))],
)
def test_arrays_come_back_as_the_same_kind(dtype: str, shape: tuple[int, ...]) -> None:
    values = COLOUR if len(shape) == 3 else GREY
    values = values.transpose(2, 0, 1) if shape[0] == 3 else values
    array = (values * 255).astype(dtype) if dtype == "uint8" else values.astype(dtype)
    array = (values * 65535).astype(dtype) if dtype == "uint16" else array
    back = of(array).like_input()
    assert type(back) is np.ndarray
    assert (back.shape, back.dtype) == (shape, array.dtype)
    assert 0.7 < back.astype(float).mean() / array.astype(float).mean() < 1.3


def test_tensors_and_masked_arrays_come_back_as_they_were() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        back = of(torch.from_numpy(GREY)[None].to(dtype)).like_input()
        assert isinstance(back, torch.Tensor)
        assert (back.dtype, tuple(back.shape)) == (dtype, (1, SIZE, SIZE))
    masked = np.ma.masked_array(GREY, GREY > 0.8)
    result = of(masked)
    assert isinstance(result.like_input(), np.ma.MaskedArray)
    np.testing.assert_array_equal(result.like_input().mask, masked.mask)
    np.testing.assert_array_equal(np.asarray(result), np.asarray(of(GREY, mask=GREY > 0.8)))


def test_data_arrays_keep_dimensions_coordinates_and_attributes() -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is not installed (an optional package)")
    rows = np.linspace(0, 2.3, SIZE)
    given = xarray.DataArray(
        COLOUR.transpose(1, 2, 0), dims=("x", "band", "y"), name="field",
        coords={"x": rows[::-1], "y": rows, "band": ["r", "g", "b"], "when": 3}, attrs={"units": "counts"},
    )  # fmt: skip
    back = of(given).like_input()
    assert (back.dims, back.name, back.attrs) == (given.dims, "field", {"units": "counts"})
    for name in given.coords:
        xarray.testing.assert_equal(back.coords[name], given.coords[name])
    expected = np.asarray(of(COLOUR))
    np.testing.assert_allclose(back.transpose("y", "x", "band").values, expected, rtol=1e-12, atol=1e-12)
    stack = xarray.DataArray(np.stack([GREY] * 5), dims=("z", "y", "x"))
    assert of(stack).like_input().shape == (5, SIZE, SIZE)  # pages by their name: nothing has to be said
    plain = of(xarray.DataArray(GREY), xarray.DataArray(PSF)).like_input()
    np.testing.assert_allclose(plain.values, np.asarray(of(GREY)), rtol=1e-12, atol=1e-12)
    with pytest.raises(pl.InputError, match="say axes='BHW' or axes='CHW'"):
        of(xarray.DataArray(np.zeros((9, SIZE, SIZE)), dims=("a", "b1", "c1")))


def test_data_arrays_that_change_their_size_lose_only_what_does_not_fit() -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is not installed (an optional package)")
    given = xarray.DataArray(GREY, dims=("y", "x"), coords={"y": np.arange(SIZE), "t": 5}, attrs={"a": 1})
    larger = pl.restore(given, pl.Decimation(2), noise=0.02, denoiser="tv", method="ladmm", iterations=2).like_input()
    assert larger.shape == (2 * SIZE, 2 * SIZE)
    assert set(larger.coords) == {"t"}
    assert larger.attrs == {"a": 1}


def test_ccddata_keeps_mask_uncertainty_wcs_and_unit(coordinates: WCS) -> None:
    mask = np.zeros((SIZE, SIZE), bool)
    mask[4:6, 7] = True
    broken = np.where(mask, 60000, 1000 * GREY)
    sigma = np.full((SIZE, SIZE), 20.0)
    header = fits.Header({"OBJECT": "M13"})
    given = CCDData(broken, uncertainty=StdDevUncertainty(sigma), mask=mask, wcs=coordinates, meta=header, unit="adu")
    result = of(given)
    back = result.like_input()
    assert type(back) is CCDData
    assert back.unit == given.unit
    assert back.header["OBJECT"] == "M13"
    np.testing.assert_array_equal(back.mask, mask)
    np.testing.assert_array_equal(back.uncertainty.array, sigma)
    np.testing.assert_allclose(back.wcs.wcs.crval, [10, 20])
    # The uncertainty is the noise, the mask leaves pixels out, the WCS gives the size of a pixel.
    same = np.asarray(of(broken, variance=sigma**2, mask=mask))
    np.testing.assert_allclose(back.data, same, rtol=1e-9)
    assert abs(back.data[4, 7]) < 3000
    assert str(result.before.metadata.pixel_scale) == "0.72 arcsec"
    assert any("correlates neighbours" in note for note in result.notes)


def test_every_kind_of_uncertainty_is_the_same_noise() -> None:
    variance = 400 * (1 + np.arange(SIZE * SIZE).reshape(SIZE, SIZE) / 500)
    kinds = [StdDevUncertainty(variance**0.5), VarianceUncertainty(variance), InverseVariance(1 / variance)]
    found = [of(NDData(1000 * GREY, uncertainty=kind, unit="adu")).like_input() for kind in kinds]
    assert {type(one) for one in found} == {NDData}
    for one in found[1:]:
        np.testing.assert_allclose(one.data, found[0].data, rtol=1e-9)
    # An uncertainty may have a unit of its own.
    volts = NDData(GREY, uncertainty=StdDevUncertainty(variance**0.5, unit="mV"), unit="V")
    np.testing.assert_allclose(of(volts).like_input().data, np.asarray(of(GREY, variance=variance / 1e6)), rtol=1e-9)
    strange = of(NDData(GREY, uncertainty=UnknownUncertainty(variance)))
    assert any("UnknownUncertainty is no standard deviation" in note for note in strange.notes)


def test_pixels_without_an_uncertainty_do_not_count() -> None:
    sigma = np.full((SIZE, SIZE), 20.0)
    sigma[4, 7], sigma[5, 7] = np.nan, 0
    data = 1000 * GREY
    data[4:6, 7] = 50000
    back = of(NDData(data, uncertainty=StdDevUncertainty(sigma))).like_input()
    assert np.abs(back.data[4:6, 7]).max() < 3000


def test_containers_are_not_imported() -> None:
    """A class of that name in a module that is not loaded is no container, and nothing is imported to find out."""
    from pnpladmm.restoration.containers import unpacked

    assert unpacked(GREY) is None
    assert unpacked(types.SimpleNamespace(data=GREY)) is None


class Tags(HTMLParser):
    """All tags and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_result_shows_itself_in_a_notebook() -> None:
    result = of(1000 * GREY, method="ladmm")
    html = result._repr_html_()
    assert html is not None
    page = Tags(html)
    assert not page.open  # every tag is closed
    names = {tag for tag, _ in page.tags}
    assert names <= {"div", "figure", "img", "figcaption", "p", "b", "details", "summary", "pre", "ul", "li"}
    assert [a["alt"] for tag, a in page.tags if tag == "img"][:2] == ["before", "after"]
    sources = [a["src"] or "" for tag, a in page.tags if tag == "img"]
    assert all(source.startswith("data:image/") for source in sources)
    assert len(sources) >= 4  # and the curves
    assert not any(name.startswith("on") for _, a in page.tags for name in a)
    assert "Certificate" in html
    assert result.status.label in html


def test_what_a_notebook_shows_is_escaped_and_small() -> None:
    class Odd(pl.Mask):
        def __repr__(self) -> str:
            return "<script>alert(1)</script>"

    large = np.tile(GREY, (60, 30))
    result = of(large, Odd(torch.ones(large.shape)), denoiser=lambda x, s: x, noise=0.02)
    object.__setattr__(result, "notes", ("<img src=x onerror=alert(1)>",))
    html = result._repr_html_() or ""
    assert "<script" not in html
    assert "&lt;img src=x onerror" in html
    assert len(html) < 1_500_000
    assert not re.search(r"https?://", html)


def test_a_result_of_solve_shows_itself_too() -> None:
    problem = pl.Problem(torch.rand(2, 1, 8, 8), pl.Mask(torch.ones(8, 8)), pl.Gaussian(0.1))
    result = pl.solve(problem, pl.LADMM.certified(pl.load_denoiser("tv"), problem, 0.05), iterations=3, tolerance=0)
    html = result._repr_html_() or ""
    assert "2, the first is shown" in html
    assert "proved" in html


def test_importing_the_package_draws_nothing() -> None:
    """The look of results costs no import of matplotlib or jinja2 before a notebook asks."""
    import subprocess

    code = "import sys, pnpladmm; print(sorted({'matplotlib', 'jinja2', 'xarray', 'astropy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
