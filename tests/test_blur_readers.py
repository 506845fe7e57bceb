"""The registry of blur readers: a reader of another package works wherever a blur file is read."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch

from blur_cases import (
    SIZE,
    check_shows,
    comet,
    one_thread,  # noqa: F401
    placed,
    unit,
)
from pnpladmm.blur import READERS, Blur, Options, as_blur, read_blur
from pnpladmm.blur.readers.archives import ArchiveReader
from pnpladmm.blur.registry import readers
from pnpladmm.tensors import InputError
from psfex_cases import write_psfex

KERNEL = unit(comet())
MAGIC = b"TOYBLUR "


class ToyReader:
    """`TOYBLUR side`, and then the kernel's values as text."""

    def matches(self, path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC

    def read(self, path: Path, options: Options) -> Blur:
        _, side, *values = path.read_text().split()
        kernel = torch.tensor([float(v) for v in values], dtype=torch.float64).reshape(1, int(side), int(side))
        return Blur(kernel, torch.ones(1, *options.needed_size(str(path), "a toy")), notes=("a toy",), source="a toy")


class VaryingToyReader(ToyReader):
    """The kernel of the toy and its transpose, left and right."""

    def read(self, path: Path, options: Options) -> Blur:
        one = super().read(path, options)
        kernels = torch.cat([one.kernels, one.kernels.mT])
        left = (torch.arange(SIZE[1]) < 30).float().expand(SIZE)
        return Blur(kernels, torch.stack([left, 1 - left]), source="two toys")


@pytest.fixture(autouse=True)
def restored_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(READERS, "_things", dict(READERS._things))
    monkeypatch.setattr(READERS, "_points", dict(READERS._others()))
    return


def toy_file(path: Path) -> Path:
    path.write_text(f"TOYBLUR {len(KERNEL)}\n" + "\n".join(repr(float(v)) for v in KERNEL.ravel()))
    return path


def test_a_registered_reader_works_at_top_level(tmp_path: Path) -> None:
    path = toy_file(tmp_path / "k.toy")
    with pytest.raises(InputError, match="unknown format"):
        read_blur(path, SIZE)
    READERS.register("toy")(ToyReader())
    blur = read_blur(path, SIZE)
    assert (blur.source, blur.notes) == ("a toy", ("a toy",))
    check_shows(blur, 20, 33, placed(KERNEL, 20, 33))
    assert torch.equal(as_blur(str(path), SIZE).kernels, blur.kernels)


def test_a_class_serves_as_a_reader_and_an_entry_point_is_found(tmp_path: Path) -> None:
    path = toy_file(tmp_path / "k.toy")
    READERS._others()["toy"] = EntryPoint("toy", f"{__name__}:ToyReader", READERS.group)
    assert "toy" in READERS
    check_shows(read_blur(path, SIZE), 20, 33, placed(KERNEL, 20, 33))


@pytest.mark.parametrize("key", ["blur", "kernels"])
def test_inside_a_yaml_file_in_place_of_regions(tmp_path: Path, key: str) -> None:
    READERS.register("toy")(ToyReader)
    toy_file(tmp_path / "k.toy")
    (tmp_path / "b.yaml").write_text(f"{key}: k.toy\n")
    check_shows(read_blur(tmp_path / "b.yaml", SIZE), 20, 33, placed(KERNEL, 20, 33))


def test_inside_a_yaml_file_as_the_kernel_of_a_region(tmp_path: Path) -> None:
    READERS.register("toy")(ToyReader)
    toy_file(tmp_path / "k.toy")
    text = "feather: 0.5\nregions:\n  - rectangle: [30, 0, 59, 47]\n    kernel: k.toy\n"
    (tmp_path / "b.yaml").write_text(text)
    blur = read_blur(tmp_path / "b.yaml", SIZE)
    check_shows(blur, 20, 44, placed(KERNEL, 20, 44))
    check_shows(blur, 20, 10, placed(np.ones((1, 1)), 20, 10))
    assert "region 1: a toy" in blur.notes


def test_a_region_takes_one_kernel(tmp_path: Path) -> None:
    READERS.register("toy")(VaryingToyReader)
    toy_file(tmp_path / "k.toy")
    (tmp_path / "b.yaml").write_text("regions:\n  - rectangle: [30, 0, 59, 47]\n    kernel: k.toy\n")
    with pytest.raises(InputError, match=r"k\.toy: two toys varies over the picture: give a region one kernel"):
        read_blur(tmp_path / "b.yaml", SIZE)


@pytest.mark.parametrize("form", ["psfex", "npz"])
def test_a_region_reads_formats_that_only_one_reader_knows(tmp_path: Path, form: str) -> None:
    """A PSFEx file varies, kernels and weights of one kernel do not."""
    if form == "psfex":
        write_psfex(tmp_path / "k.dat", 1.0, 21)
    else:
        with (tmp_path / "k.dat").open("wb") as file:
            np.savez(file, basis=KERNEL[None], kmap=np.ones((1, *SIZE)))
    (tmp_path / "b.yaml").write_text("regions:\n  - rectangle: [0, 0, 59, 47]\n    kernel: k.dat\n")
    if form == "psfex":
        with pytest.raises(InputError, match="PSFEx model of degree 2 varies"):
            read_blur(tmp_path / "b.yaml", SIZE)
    else:
        check_shows(read_blur(tmp_path / "b.yaml", SIZE), 20, 33, placed(KERNEL, 20, 33))


def test_a_blur_file_does_not_read_blur_files(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("regions:\n  - rectangle: [0, 0, 9, 9]\n    kernel: b.yaml\n")
    with pytest.raises(InputError, match="a blur file cannot point to a blur file"):
        read_blur(tmp_path / "b.yaml", SIZE)


def test_a_toy_without_generality_comes_before_the_readers_of_this_package(tmp_path: Path) -> None:
    class Everything(ToyReader):
        def matches(self, path: Path) -> bool:
            return True

    class Rest(Everything):
        generality = 99

    toy_file(tmp_path / "k.toy")
    np.save(tmp_path / "k.npy", KERNEL)
    READERS.register("zz")(Rest)
    assert read_blur(tmp_path / "k.npy", SIZE).source == "one kernel"
    assert read_blur(tmp_path / "k.toy", SIZE).source == "a toy"
    READERS.register("zzz")(Everything)
    assert isinstance(readers()[0], Everything)
    with pytest.raises(InputError, match=r"k\.npy: cannot be read \(UnicodeDecodeError"):
        read_blur(tmp_path / "k.npy", SIZE)


def test_the_order_of_this_packages_readers(tmp_path: Path) -> None:
    """Several match these: weights come before PSFs, PSFs before maps, and all of them before a bare array."""
    np.savez(tmp_path / "all.npz", kernels=KERNEL[None], weights=np.ones((1, *SIZE)), psfs=KERNEL[None], sigma=1.0)
    assert read_blur(tmp_path / "all.npz", SIZE).source == "kernels and weights"
    places = {"psfs": KERNEL[None], "positions": [[5, 5]], "sigma": 1.0, "kernel": KERNEL}
    np.savez(tmp_path / "places.npz", **places)
    assert read_blur(tmp_path / "places.npz", SIZE).source == "1 PSFs at scattered places"
    np.savez(tmp_path / "map.npz", sigma=np.ones(SIZE), kernel=KERNEL)
    assert read_blur(tmp_path / "map.npz", SIZE).source == "a map of gaussian blur"


def test_matches_never_raises(tmp_path: Path) -> None:
    starts = [b"", b"hello", b"PK\x03\x04", b"MATLAB 5.0", b"MATLAB 7.3", b"SIMPLE  =", b"II*\x00", b"\x93NUMPY"]
    paths = [tmp_path / "missing.npz", tmp_path]
    for number, start in enumerate(starts):
        for suffix in (".psf", ".yaml", ".csv"):
            paths.append(tmp_path / f"{number}{suffix}")
            paths[-1].write_bytes(start)
    for path in paths:
        assert all(isinstance(reader.matches(path), bool) for reader in readers())


def test_broken_readers_of_other_packages_do_not_stop_the_others(tmp_path: Path) -> None:
    np.save(tmp_path / "k.npy", KERNEL)
    READERS._others()["gone"] = EntryPoint("gone", "no_such_package:Reader", READERS.group)
    with pytest.warns(UserWarning, match="'gone': no_such_package:Reader cannot be loaded"):
        read_blur(tmp_path / "k.npy", SIZE)
    del READERS._others()["gone"]

    class Careless(ToyReader):
        def matches(self, path: Path) -> bool:
            raise RuntimeError("oops")

    READERS.register("careless")(Careless)
    with pytest.warns(UserWarning, match="Careless failed to look at .*oops"):
        check_shows(read_blur(tmp_path / "k.npy", SIZE), 20, 33, placed(KERNEL, 20, 33))


def test_a_reader_of_archives_also_reads_dictionaries(tmp_path: Path) -> None:
    class Turned(ArchiveReader):
        def has_names(self, names: object) -> bool:
            return "turned" in names  # type: ignore[operator]

        def from_arrays(self, name: str, arrays: object, options: Options) -> Blur:
            return as_blur(np.asarray(arrays["turned"]).T, options.size)  # type: ignore[index]

    READERS.register("turned")(Turned)
    np.savez(tmp_path / "t.npz", turned=KERNEL.T)
    for given in (tmp_path / "t.npz", {"turned": KERNEL.T}):
        check_shows(as_blur(given, SIZE), 20, 33, placed(KERNEL, 20, 33))


def test_a_reader_that_returns_a_blur_of_another_size_is_caught(tmp_path: Path) -> None:
    class Wrong(ToyReader):
        def read(self, path: Path, options: Options) -> Blur:
            return super().read(path, options.but(size=(40, 40)))

    READERS.register("wrong")(Wrong)
    with pytest.raises(InputError, match="the blur is for 40x40, the picture is 48x60"):
        read_blur(toy_file(tmp_path / "k.toy"), SIZE)
