"""Runs in parts that are stopped: by a kill, by a full disk, by a damaged tile. They go on later."""

import errno
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pnpladmm as pl
from pnpladmm.scale import restore_large
from pnpladmm.scale.store import TileStore
from scale_cases import contents, settings

zarr = pytest.importorskip("zarr", reason="needs the extra scale: pip install 'pnpladmm[scale]'")


def test_finished_tiles_are_kept_and_a_damaged_one_is_made_again(scene, expected):
    class Enough(Exception):
        pass

    def stop(done, total, rate):
        assert rate > 0
        if done == 2:
            raise Enough

    output = scene / "resumed.zarr"
    with pytest.raises(Enough):
        restore_large(settings(scene, "in.zarr"), output, side=192, tell=stop)
    store = TileStore(Path(f"{output}.tiles"))
    store.path(0).write_bytes(store.path(0).read_bytes()[:100])
    done = restore_large(settings(scene, "in.zarr"), output, side=192)
    assert "1 tiles of an earlier run were kept" in done.done.notes
    np.testing.assert_array_equal(zarr.open(output / "0", mode="r")[:], expected)


@pytest.mark.parametrize("moment", ["tile", "picture"])
def test_a_full_disk_is_one_line_and_the_run_goes_on_later(scene, expected, tmp_path, monkeypatch, moment):
    written = []

    def full(*given, inner=np.save, **options):
        written.append(given)
        if moment == "tile" and len(written) > 4:  # a tile and a look each
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        inner(*given, **options)

    def allocate(*given):
        if moment == "picture":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "save", full)
    monkeypatch.setattr(os, "posix_fallocate", allocate)
    output = tmp_path / "full.zarr"
    with pytest.raises(pl.InputError, match=r"full.zarr.*cannot be written \(No space left on device\)") as error:
        restore_large(settings(scene, "in.zarr"), output, side=192)
    assert "\n" not in str(error.value)
    assert not output.exists()
    monkeypatch.undo()
    done = restore_large(settings(scene, "in.zarr"), output, side=192)
    assert any("tiles of an earlier run were kept" in note for note in done.done.notes)
    np.testing.assert_array_equal(zarr.open(output / "0", mode="r")[:], expected)


def test_a_kill_while_the_tiles_are_removed_leaves_a_folder_that_is_known(tmp_path, monkeypatch):
    store = TileStore.open(tmp_path / "out.npy", "digest")
    for number in range(5):
        store.write(number, np.zeros((1, 2, 2)))
    left = []
    monkeypatch.setattr("shutil.rmtree", lambda folder, **_: left.extend(path.name for path in folder.iterdir()))
    store.remove()
    assert left == ["job.json"]
    TileStore.open(tmp_path / "out.npy", "digest")


KILLS = int(os.environ.get("PNPLADMM_TEST_KILLS", "1"))
"""So many kills at random moments, for each format."""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".zarr", ".tif"] if KILLS > 1 else [".zarr"])
def test_killed_at_any_moment_the_same_command_writes_the_same_bytes(scene, suffix, tmp_path):
    command = [sys.executable, "-m", "pnpladmm", "restore", str(scene / "in.zarr"), "-b", str(scene / "psf.npy")]
    command += ["--noise", "2.55", "--iterations", "2", "--tiles", "192", "-o"]
    began = time.monotonic()
    subprocess.run([*command, str(tmp_path / f"out{suffix}")], check=True, capture_output=True)
    seconds = time.monotonic() - began
    wanted = contents(tmp_path / f"out{suffix}")
    draw = random.Random(suffix)
    for number in range(KILLS):
        output = tmp_path / str(number) / f"out{suffix}"
        output.parent.mkdir()
        running = subprocess.Popen([*command, str(output)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(draw.uniform(0.2, 1) * seconds)
        running.kill()
        running.wait()
        subprocess.run([*command, str(output)], check=True, capture_output=True)
        assert contents(output) == wanted
        assert not Path(f"{output}.tiles").exists()
