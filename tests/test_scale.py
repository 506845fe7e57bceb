"""Pictures that are read and written in parts: formats, decisions on the whole picture, memory."""

import numpy as np
import pytest
import tifffile
import torch

import pnpladmm as pl
from pnpladmm.blur import read_blur
from pnpladmm.scale import open_source, restore_large
from pnpladmm.scale.decisions import Decisions
from pnpladmm.scale.fits_file import write_fits
from scale_cases import contents, settings

zarr = pytest.importorskip("zarr", reason="needs the extra scale: pip install 'pnpladmm[scale]'")


def test_zarr_is_restored_as_by_the_tiles_of_restore(scene, expected):
    whole = pl.restore(scene / "in.tif", scene / "psf.npy", noise=0.01, iterations=2, tiles=192, denoiser="light")
    assert expected.dtype == np.uint16
    np.testing.assert_allclose(np.asarray(whole).astype(int), expected[0].astype(int), atol=3)
    assert not (scene / "expected.zarr.tiles").exists()
    attributes = zarr.open(scene / "expected.zarr", mode="r").attrs["ome"]
    assert attributes["multiscales"][0]["axes"][-1]["name"] == "x"


def test_tiff_in_and_out_have_the_same_pixels_and_a_pyramid(scene, expected, monkeypatch):
    monkeypatch.setattr("pnpladmm.scale.output.SMALLEST", 150)
    done = restore_large(settings(scene), scene / "out.tif", side=192)
    with tifffile.TiffFile(scene / "out.tif") as file:
        levels = file.series[0].levels
        assert [level.shape[-2:] for level in levels] == [(160, 300), (80, 150)]
        found = levels[0].asarray().squeeze()
        half = levels[1].asarray().squeeze()
    np.testing.assert_array_equal(found, expected[0])
    mean = found.astype(float).reshape(80, 2, 150, 2).mean((1, 3))
    np.testing.assert_array_equal(half, np.rint(mean))
    assert any("seams" in note for note in done.done.notes)


def test_estimates_are_made_once_for_the_whole_picture(scene):
    done = restore_large(settings(scene, noise=None, denoiser="light"), scene / "auto.npy", side=192)
    assert done.noise == pytest.approx(0.01, rel=0.1)
    assert np.load(scene / "auto.npy").shape == (160, 300)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "uint32", "float32", "float64"])
@pytest.mark.parametrize("channels", [1, 2])
def test_fits_is_written_as_astropy_reads_it(tmp_path, dtype, channels):
    from astropy.io import fits

    draw = np.random.default_rng(0)
    ends = (0, 1) if dtype.startswith("f") else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    samples = draw.uniform(*ends, (channels, 37, 41)).astype(dtype)
    write_fits(tmp_path / "out.fits", samples, None)
    with fits.open(tmp_path / "out.fits") as found:
        found.verify("exception")
        assert found[0].data.dtype.newbyteorder("=") == dtype
        np.testing.assert_array_equal(found[0].data, samples if channels > 1 else samples[0])


def test_fits_keeps_its_header(scene, tmp_path):
    from astropy.io import fits

    old = fits.ImageHDU(tifffile.imread(scene / "in.tif"))
    old.header["CRVAL1"], old.header["OBJECT"] = 12.5, "M 13"
    old.header.add_history("flat field")
    fits.HDUList([fits.PrimaryHDU(), old]).writeto(tmp_path / "in.fits")
    restore_large(settings(scene, picture=str(tmp_path / "in.fits")), tmp_path / "out.fits", side=256)
    with fits.open(tmp_path / "out.fits") as found:
        assert (found[0].header["CRVAL1"], found[0].header["OBJECT"]) == (12.5, "M 13")
        assert list(found[0].header["HISTORY"]) == ["flat field", "restored with pnpladmm, in parts"]
        assert found[0].data.shape == (160, 300)
        assert found[0].data.dtype == np.uint16


def test_tiff_keeps_profile_and_resolution(scene, tmp_path):
    colour = np.stack([tifffile.imread(scene / "in.tif")] * 3, -1)
    profile = bytes(range(128))
    options = {"iccprofile": profile, "resolution": (300, 200), "resolutionunit": "INCH"}
    tifffile.imwrite(tmp_path / "in.tif", colour, tile=(64, 64), photometric="rgb", **options)
    restore_large(settings(scene, picture=str(tmp_path / "in.tif")), tmp_path / "out.tif", side=256)
    with tifffile.TiffFile(tmp_path / "out.tif") as file:
        page = file.pages[0]
        assert page.shape == colour.shape
        assert page.tags["InterColorProfile"].value == profile
        assert page.resolution == (300, 200)
        assert int(page.tags["ResolutionUnit"].value) == 2


def test_the_same_command_replaces_a_zarr_that_is_there(scene, tmp_path, run):
    command = ["restore", str(scene / "in.zarr"), "-b", str(scene / "psf.npy"), "-o", str(tmp_path / "out.zarr")]
    command += ["--noise", "2.55", "--iterations", "2"]
    assert run(*command)[0] == 0
    first = contents(tmp_path / "out.zarr")
    assert run(*command)[0] == 0
    assert contents(tmp_path / "out.zarr") == first


def test_hot_pixels_are_found_as_in_memory(scene, tmp_path):
    samples = tifffile.imread(scene / "in.tif")
    for row, column in ((20, 30), (95, 106), (140, 250)):
        samples[row, column] = 65000 if samples[row, column] < 32768 else 100
    np.save(tmp_path / "hot.npy", samples)
    given = settings(scene, picture=str(tmp_path / "hot.npy"))
    done = restore_large(given, tmp_path / "out.npy", side=192)
    whole = pl.restore(tmp_path / "hot.npy", scene / "psf.npy", noise=0.01, iterations=2, tiles=192, denoiser="light")
    words = next(note for note in whole.notes if "single pixels stand out" in note)
    assert words in done.done.notes
    assert words.startswith("3 ")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy").astype(int), np.asarray(whole).astype(int), atol=3)


@pytest.mark.parametrize(("side", "noise", "withdrawn"), [(15, 0.01, True), (5, 0.003, False)])
def test_a_wrong_psf_or_noise_has_the_same_consequences_as_in_memory(scene, tmp_path, side, noise, withdrawn):
    np.save(tmp_path / "given.npy", np.ones((side, side)) / side**2)
    given = settings(scene, "edges.tif", blur=str(tmp_path / "given.npy"), noise=noise, iterations=4, denoiser="light")
    done = restore_large(given, tmp_path / "out.npy", side=256)
    whole = pl.restore(scene / "edges.tif", tmp_path / "given.npy", noise=noise, iterations=4, denoiser="light")
    assert (done.done.status is pl.Status.WITHDRAWN) is withdrawn is (whole.status is pl.Status.WITHDRAWN)
    assert done.noise == pytest.approx(float(whole.noise), rel=0.2)
    assert done.noise > 1.3 * noise
    if withdrawn:
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), tifffile.imread(scene / "edges.tif"))
        assert done.done.warnings == whole.warnings[:1]
    else:
        check = whole.checks[0]
        assert done.done.residual == pytest.approx((check.size, check.correlation), rel=0.2, abs=0.05)
        assert "restored more gently" in done.done.warnings[0]


def test_a_right_psf_is_not_doubted_in_small_parts(scene, tmp_path):
    # What is looked at is darker and brighter than its own observation in places, but not than the whole picture.
    done = restore_large(settings(scene, "edges.tif", iterations=8), tmp_path / "out.npy", side=192)
    assert done.noise == 0.01
    assert done.done.warnings == ()


@pytest.mark.parametrize(
    ("blur", "options"),
    [
        ("psf.npy", {}),
        ("grid.npz", {}),
    ],
)
def test_a_blur_in_a_window_is_that_part_of_the_blur(scene, blur, options):
    psfs = np.stack([np.exp(-(np.mgrid[-4:5, -4:5] ** 2).sum(0) / (2 * s**2)) for s in (1, 1.3, 1.6, 2)])
    np.savez(scene / "grid.npz", psfs=psfs, positions=np.array([[0, 0], [290, 0], [0, 150], [290, 150]]))
    whole = read_blur(scene / blur, (160, 300), **options)
    part = read_blur(scene / blur, (160, 300), window=((40, 90), (230, 300)), **options)
    assert part.size == (50, 70)
    full = torch.einsum("phw,pcij->hwcij", whole.weights[:, 40:90, 230:].double(), whole.kernels)
    here = torch.einsum("phw,pcij->hwcij", part.weights.double(), part.kernels)
    torch.testing.assert_close(here, full, rtol=1e-6, atol=1e-9)


def test_files_are_read_in_parts(scene):
    samples = tifffile.imread(scene / "in.tif")
    np.save(scene / "in.npy", samples)
    from astropy.io import fits

    fits.PrimaryHDU(samples).writeto(scene / "in.fits", overwrite=True)
    group = zarr.open_group(scene / "ome.zarr", mode="w")
    level = group.create_array("full", shape=(1, 1, 1, *samples.shape), chunks=(1, 1, 1, 64, 100), dtype="uint16")
    level[0, 0, 0] = samples
    axes = [{"name": n, "type": "space", "unit": "micrometer"} for n in "tczyx"]
    transform = [{"type": "scale", "scale": [1, 1, 1, 0.5, 0.25]}]
    datasets = [{"path": "full", "coordinateTransformations": transform}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    for name in ("in.tif", "in.zarr", "in.npy", "in.fits", "ome.zarr"):
        with open_source(scene / name) as source:
            assert source.shape == (1, 160, 300)
            np.testing.assert_array_equal(source.read((30, 120), (200, 300))[0], samples[30:120, 200:])
    with open_source(scene / "ome.zarr") as source:
        assert source.beside.pixel_size == (0.5, 0.25)


def test_colour_planes_lie_where_the_pictures_do():
    eye = torch.eye(3)[None].tolist()
    found = Decisions((9, 9), 3, 1.0, 0.1, False, (0.0, 1.0), (3, 3), planes=(eye, eye, [[1.0, 0.5, 0.1]]))
    planes = found.colour_planes(torch.empty(1, 3, 9, 9, device="meta", dtype=torch.float64))
    assert planes is not None
    assert (planes.mixing.device.type, planes.unmixing.device.type, planes.energy.device.type) == (
        "meta",
        "meta",
        "cpu",
    )


def test_the_memory_decides_how_large_tiles_are(scene, tmp_path):
    tiles = [
        restore_large(settings(scene), tmp_path / f"{memory}.npy", side=None, memory=memory).tiles
        for memory in (10**9, 380 * 10**6)
    ]
    assert tiles == [1, 3]
    with pytest.raises(pl.InputError, match="a worker with this blur"):
        restore_large(settings(scene), tmp_path / "out.npy", side=None, memory=3 * 10**8)
