"""Pictures in parts: what cannot be restored is one line."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import pnpladmm as pl
from pnpladmm.scale import restore_large
from pnpladmm.scale.store import TileStore
from scale_cases import settings

zarr = pytest.importorskip("zarr", reason="needs the extra scale: pip install 'pnpladmm[scale]'")


def test_bad_input_is_one_line(scene, tmp_path):
    def refused(match, output="bad.zarr", side=192, **changed):
        with pytest.raises(pl.InputError, match=match) as error:
            restore_large(settings(scene, **changed), scene / output, side=side)
        assert "\n" not in str(error.value)

    refused("no such file", picture=str(tmp_path / "none.zarr"))
    refused("give .zarr, .tif, .fits or .npy", output="bad.webp")
    refused("needs? the whole picture", denoiser="tv")
    refused("side of at least", side=100)
    cut = tmp_path / "cut.tif"
    cut.write_bytes((scene / "in.tif").read_bytes()[:5000])
    refused("in parts|cannot be read|damaged", picture=str(cut))
    empty = tmp_path / "group.zarr"
    zarr.open_group(empty, mode="w")
    refused("without a picture", picture=str(empty))
    np.savez(tmp_path / "small.npz", kernels=np.ones((1, 3, 3)) / 9, weights=np.ones((1, 50, 50)))
    refused("50x50", blur=str(tmp_path / "small.npz"))
    zarr.create_array(tmp_path / "four.zarr", shape=(4, 5, 60, 60), dtype="uint8")
    refused("one plane", picture=str(tmp_path / "four.zarr"))


@pytest.mark.parametrize("where", ["chunk", "description"])
def test_a_truncated_zarr_is_one_line(scene, tmp_path, where):
    broken = tmp_path / "cut.zarr"
    shutil.copytree(scene / "in.zarr", broken)
    files = [path for path in broken.rglob("*") if path.is_file() and (path.name == "zarr.json") is (where != "chunk")]
    largest = max(files, key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
    with pytest.raises(pl.InputError, match=r"cut.zarr.*cannot be read.*get (it|the file) again") as error:
        restore_large(settings(scene, str(broken)), tmp_path / "out.npy", side=192)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out.npy").exists()


def test_tiles_of_another_job_are_refused(scene):
    output = scene / "other.npy"
    folder = Path(f"{output}.tiles")
    TileStore.open(output, "another digest")
    with pytest.raises(pl.InputError, match="tiles of another job"):
        restore_large(settings(scene), output, side=192)
    assert folder.is_dir()


def test_a_picture_smaller_than_the_halo_is_one_tile(tmp_path, scene):
    np.save(tmp_path / "small.npy", np.random.default_rng(0).random((40, 50)).astype(np.float32))
    done = restore_large(settings(scene, picture=str(tmp_path / "small.npy")), tmp_path / "out.npy")
    assert done.tiles == 1
    assert np.load(tmp_path / "out.npy").shape == (40, 50)
