"""Files that are read in parts pass the same gate as those that are read whole. `tests/fuzz` damages them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import tifffile
import zarr
from astropy.io import fits

from gate_cases import little_memory, refused  # noqa: F401
from pnpladmm.scale import open_source

SAMPLES = np.random.default_rng(0).integers(0, 65535, (3, 40, 50), dtype=np.uint16)


def opened(path: Path) -> None:
    with open_source(path) as source:
        source.read((0, 40), (0, 50))


def blosc(path: Path, **options: object) -> None:
    codec = zarr.codecs.BloscCodec(cname="zstd")
    zarr.create_array(path, data=SAMPLES, compressors=codec, overwrite=True, **options)


@pytest.mark.parametrize("planes", ["separate", "contig"])
def test_the_channels_of_tiff_lie_before_or_after(planes: str, tmp_path: Path) -> None:
    samples = SAMPLES if planes == "separate" else np.moveaxis(SAMPLES, 0, -1)
    tifffile.imwrite(tmp_path / "a.tif", samples, photometric="rgb", planarconfig=planes, compression="lzw")
    with open_source(tmp_path / "a.tif") as source:
        assert source.shape == SAMPLES.shape
        assert np.array_equal(source.read((3, 20), (5, 30)), SAMPLES[:, 3:20, 5:30])


def test_a_cut_tiff_is_refused(tmp_path: Path) -> None:
    """Its JPEG decoder would fill the rest with grey."""
    pixels = np.random.default_rng(0).integers(0, 255, (120, 160, 3), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", compression="jpeg", tile=(64, 64))
    whole = (tmp_path / "a.tif").read_bytes()
    opened(tmp_path / "a.tif")
    (tmp_path / "a.tif").write_bytes(whole[: len(whole) * 3 // 4])
    refused(lambda: opened(tmp_path / "a.tif"), "cut off")


@pytest.mark.parametrize("axes", [33, 2**31 - 1, -1])
def test_fits_headers_are_not_believed(axes: int, tmp_path: Path) -> None:
    path = tmp_path / "a.fits"
    fits.PrimaryHDU(SAMPLES).writeto(path)
    opened(path)
    path.write_bytes(path.read_bytes().replace(b"NAXIS   =                    3", f"NAXIS   = {axes:20}".encode(), 1))
    refused(lambda: opened(path), f"NAXIS is {axes}")
    path.write_bytes(gzip.compress(path.read_bytes()))
    refused(lambda: opened(path), "unpack it first")


def test_npy_headers_are_not_believed(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 3_928_350_290) + bytes(200))
    refused(lambda: opened(tmp_path / "a.npy"), "its header would have 3928350290 bytes")


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_of_blosc_are_as_long_as_they_say(version: int, tmp_path: Path) -> None:
    """Blosc reads on behind a chunk that is shorter: the process would crash."""
    compressor = zarr.codecs.BloscCodec() if version == 3 else numcodecs.Blosc()
    zarr.create_array(
        tmp_path / "a.zarr", data=SAMPLES, chunks=(3, 20, 50), compressors=compressor, zarr_format=version
    )
    opened(tmp_path / "a.zarr")
    chunk = tmp_path / "a.zarr" / ("c/0/1/0" if version == 3 else "0.1.0")
    whole = chunk.read_bytes()
    for damaged in (whole[:-5], whole[:10], whole[:12] + struct.pack("<I", 2**31) + whole[16:], b""):
        chunk.write_bytes(damaged)
        refused(lambda: opened(tmp_path / "a.zarr"), "damaged")
        with open_source(tmp_path / "a.zarr") as source:
            assert np.array_equal(source.read((0, 20), (0, 50)), SAMPLES[:, :20])  # the other chunk
    chunk.unlink()
    opened(tmp_path / "a.zarr")  # a missing chunk is empty


def test_odd_chunks_of_zarr_are_refused(tmp_path: Path) -> None:
    blosc(tmp_path / "a.zarr", chunks=(3, 20, 25), shards=(3, 40, 50))
    refused(lambda: opened(tmp_path / "a.zarr"), "in shards")
    zarr.create_array(tmp_path / "b.zarr", shape=(10**6, 10**6), chunks=(10**5, 10**5), dtype="uint16")
    refused(lambda: opened(tmp_path / "b.zarr"), "over the limit")
