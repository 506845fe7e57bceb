"""Nothing is lost: outputs are no inputs, strangers' files stay in their folder, writing is all or nothing."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

import pnpladmm as pl
from conftest import Run
from lost_cases import FEW, refuses
from pnpladmm import jobs
from pnpladmm.blur import read_blur
from pnpladmm.files import check_writable, replacing, write_bytes
from pnpladmm.jobs import Job
from pnpladmm.jobs.files import was_done
from pnpladmm.locks import Busy, only_writer_of
from pnpladmm.workshop.experiments.store import Store

# ---- outputs and inputs

OVER = {
    "the picture": ("a.png", "psf.png", "a.png"),
    "the PSF": ("a.png", "psf.png", "psf.png"),
    "the mask": ("a.png", "psf.png", "mask.png"),
    "a link's target": ("a.png", "psf.png", "folder/psf.png"),
    "a file that the blur file names": ("a.png", "blur.yaml", "kernel.npy"),
    "the job file's place": ("a.png", "psf.png", "c.png"),
}


@pytest.mark.parametrize("name", OVER)
def test_restore_writes_over_no_input(name: str, run: Run, files: Path) -> None:
    picture, blur, out = OVER[name]
    (files / "folder").symlink_to(files, target_is_directory=True)
    extra = ["--mask", "mask.png"]
    if name == "the job file's place":
        os.link(files / "mask.png", files / "c.png.job.json")
        extra = ["--mask", "c.png.job.json"]
    line = refuses(run, files, "restore", picture, "-b", blur, "-o", out, *FEW, *extra)
    assert "would overwrite" in line


def test_no_output_of_many_is_an_input_of_another(run: Run, files: Path) -> None:
    (files / "in").mkdir()
    (files / "a.png").rename(files / "in" / "psf.png")
    before = (files / "psf.png").read_bytes()
    code, out, _ = run("restore", "in/psf.png", "b.png", "-b", "psf.png", "-o", ".", *FEW, "--json")
    assert code == 1
    assert ["would overwrite" in f["error"] for f in json.loads(out)["failed"]] == [True, True]
    assert (files / "psf.png").read_bytes() == before


def test_simulate_and_inspect_write_over_no_input(run: Run, files: Path) -> None:
    assert "would overwrite" in refuses(run, files, "simulate", "a.png", "-b", "psf.png", "-o", "a.png")
    assert "would overwrite" in refuses(run, files, "simulate", "a.png", "-b", "psf.png", "-o", "psf.png")
    (files / "c.png.blur.npz").write_bytes((files / "kernel.npy").read_bytes())
    assert "would overwrite" in refuses(run, files, "simulate", "a.png", "-b", "c.png.blur.npz", "-o", "c.png")
    assert "would overwrite" in refuses(run, files, "inspect", "psf.png", "--size", "32x32", "-o", "psf.png")
    (files / "link.png").symlink_to("psf.png")
    assert "would overwrite" in refuses(run, files, "inspect", "psf.png", "--size", "32x32", "-o", "link.png")


def test_pipes_and_devices_are_not_read(run: Run, files: Path) -> None:
    os.mkfifo(files / "pipe.png")
    for arguments in (
        ("restore", "pipe.png", "-b", "psf.png", "-o", "c.png"),
        ("restore", "a.png", "-b", "pipe.png", "-o", "c.png"),
        ("restore", "a.png", "-b", "/dev/zero", "-o", "c.png"),
        ("simulate", "a.png", "-b", "pipe.png", "-o", "c.png"),
        ("inspect", "pipe.png"),
        ("restore", "--job", "pipe.png"),
    ):
        assert "device or a pipe" in refuses(run, files, *arguments)


# ---- strangers' files


def job_file(folder: Path, **settings: object) -> str:
    """A job file that its author wrote with hashes that are right."""
    given = {"picture": "a.png", "blur": "psf.png", "output": "x.png", "noise": 3.0, "denoiser": "tv", "iterations": 2}
    (folder / "j.job.json").write_text(json.dumps({"job": given | settings, "sha256": {}}))
    return "j.job.json"


@pytest.mark.parametrize("field", ["picture", "blur", "mask", "output", "denoiser"])
@pytest.mark.parametrize("how", ["above", "absolute", "link"])
def test_a_job_file_stays_in_its_folder(field: str, how: str, run: Run, files: Path) -> None:
    inner = files / "inner"
    inner.mkdir()
    for name in ("a.png", "psf.png", "mask.png"):
        (inner / name).write_bytes((files / name).read_bytes())
    (inner / "up").symlink_to(files, target_is_directory=True)
    name = "new.safetensors" if field == "denoiser" else "b.png"
    path = {"above": f"../{name}", "absolute": str(files / name), "link": f"up/{name}"}[how]
    job_file(inner, **{field: path})
    line = refuses(run, files, "restore", "--job", "inner/j.job.json")
    assert "outside the folder" in line
    assert "--trust" in line


def test_trust_and_own_jobs(run: Run, files: Path) -> None:
    (files / "out").mkdir()
    assert run("restore", "a.png", "-b", "psf.png", "-o", "out/x.png", *FEW)[0] == 0
    first = (files / "out" / "x.png").read_bytes()
    assert "--trust" in refuses(run, files, "restore", "--job", "out/x.png.job.json")
    assert run("restore", "--job", "out/x.png.job.json", "--trust")[0] == 0
    assert (files / "out" / "x.png").read_bytes() == first
    assert "--job" in refuses(run, files, "restore", "a.png", "-b", "psf.png", "-o", "y.png", "--trust")


def test_a_job_file_without_hashes_is_refused(run: Run, files: Path) -> None:
    assert "not the file it was" in refuses(run, files, "restore", "--job", job_file(files))


START = '{"job": {"picture": "a.png", "blur": "psf.png", "output": "x.png", '
BAD_JOBS = {
    "30,000 brackets": "[" * 30_000,
    "a number for a file": '{"job": {"picture": 5, "blur": "psf.png", "output": "x.png"}, "sha256": {}}',
    "words for a switch": START + '"report": "no"}, "sha256": {}}',
    "words for another switch": START + '"saturation": "no"}, "sha256": {}}',
    "half iterations": START + '"iterations": 2.5}, "sha256": {}}',
    "two noises": START + '"noise": [5, 5]}, "sha256": {}}',
    "a surrogate": '{"job": {"picture": "\\ud800.png", "blur": "psf.png", "output": "x.png"}, "sha256": {}}',
    "a long name": '{"job": {"picture": "' + 5000 * "a" + '", "blur": "psf.png", "output": "x.png"}, "sha256": {}}',
    "a zero byte": '{"job": {"picture": "a\\u0000.png", "blur": "psf.png", "output": "x.png"}, "sha256": {}}',
    "a megabyte": '{"job": {}, "sha256": {}}' + 2_000_000 * " ",
}


@pytest.mark.parametrize("name", BAD_JOBS)
def test_odd_job_files_are_one_line(name: str, run: Run, files: Path) -> None:
    (files / "j.job.json").write_text(BAD_JOBS[name])
    refuses(run, files, "restore", "--job", "j.job.json")


def test_a_blur_file_names_files_beside_it_only(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "in").mkdir()
    (files / "in" / "link.npy").symlink_to(files / "kernel.npy")
    monkeypatch.chdir(files)  # long paths are cut in messages
    for name in ("../kernel.npy", str(files / "kernel.npy"), "link.npy"):
        (files / "in" / "b.yaml").write_text(f"background:\n  kernel: {name}\n")
        with pytest.raises(pl.InputError, match="outside the folder"):
            read_blur(Path("in/b.yaml"), (32, 32))


def test_a_bomb_of_aliases_is_refused_at_once(run: Run, files: Path) -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
    for text in (bomb, "a: &a [*a]\n"):
        (files / "bomb.yaml").write_text(text)
        assert "bomb.yaml" in refuses(run, files, "restore", "a.png", "-b", "bomb.yaml", "-o", "c.png", *FEW)


@pytest.mark.parametrize("kind", ["link", "external", "virtual"])
def test_hdf5_values_lie_in_the_file(kind: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["kernel"] = np.ones((5, 5))
    np.ones((5, 5)).tofile(tmp_path / "raw")
    with h5py.File(tmp_path / "k.mat", "w") as file:
        if kind == "link":
            file["kernel"] = h5py.ExternalLink("other.h5", "/kernel")
        elif kind == "external":
            file.create_dataset("kernel", (5, 5), "f8", external=[("raw", 0, 200)])
        else:
            layout = h5py.VirtualLayout((5, 5), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "kernel", (5, 5))
            file.create_virtual_dataset("kernel", layout)
    with pytest.raises(pl.InputError, match="another file"):
        read_blur(tmp_path / "k.mat", (32, 32))


# ---- writing


def test_what_a_killed_writer_left_is_removed_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    left, other = tmp_path / ".a.png.x1.part", tmp_path / ".b.png.x1.part"
    for path in (left, other):
        path.write_bytes(b"half")
    with replacing(tmp_path / "a.png") as living:
        living.write_bytes(b"first")
        assert not left.exists()
        assert other.exists()  # another target's
        write_bytes(tmp_path / "a.png", b"second")
        assert living.exists()
    assert (tmp_path / "a.png").read_bytes() == b"first"
    assert sorted(p.name for p in tmp_path.iterdir()) == [".b.png.x1.part", "a.png"]


def test_temporary_names_are_random_and_follow_no_link(tmp_path: Path) -> None:
    names = set()
    for _ in range(8):
        with replacing(tmp_path / "a.png") as beside:
            names.add(beside.name)
            assert beside.stat().st_mode & 0o077 == 0 or beside.stat().st_size == 0
            beside.write_bytes(b"new")
            assert not beside.is_symlink()
    assert len(names) == 8
    assert not any(str(os.getpid()) in name for name in names)
    # A link planted in place of the target's folder entry is replaced, and its target is not written.
    (tmp_path / "victim").write_bytes(b"old")
    (tmp_path / ".a.png.planted.part").symlink_to(tmp_path / "victim")
    write_bytes(tmp_path / "a.png", b"newer")
    assert (tmp_path / "victim").read_bytes() == b"old"


def test_a_full_disk_is_noticed_before_the_work(run: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 100})())
    with pytest.raises(pl.InputError, match="make room"):
        check_writable(files / "x.tif", 1000)
    monkeypatch.setattr("pnpladmm.jobs.run.restore_with", lambda *_, **__: pytest.fail("it began to work"))
    assert "make room" in refuses(run, files, "restore", "a.png", "-b", "psf.png", "-o", "x.png", *FEW)


def test_one_writer_at_a_time(run: Run, files: Path) -> None:
    with only_writer_of(files / "x.png"):
        with pytest.raises(Busy, match="another process"), only_writer_of(files / "x.png"):
            pytest.fail("two at once")
        assert "another process" in refuses(run, files, "restore", "a.png", "-b", "psf.png", "-o", "x.png", *FEW)
    assert run("restore", "a.png", "-b", "psf.png", "-o", "x.png", *FEW)[0] == 0
    assert not list(files.glob(".*"))


def test_two_trainings_do_not_share_a_file(tmp_path: Path) -> None:
    from pnpladmm.workshop.training.loop import train
    from pnpladmm.workshop.training.plan import Plan

    plan = Plan(out=tmp_path / "w.safetensors", data=(tmp_path,), minutes=0.01)
    with only_writer_of(plan.out), pytest.raises(pl.InputError, match="another process"):
        train(plan)


# ---- the store of the experiments

KEY = {"experiment": "table", "n": 1}


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_damaged_unit_is_computed_again(suffix: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(KEY, {"psnr": 30.5, "curve": np.arange(6.0)})
    assert store.get(KEY)["curve"].tolist() == [0, 1, 2, 3, 4, 5]
    path = next(tmp_path.glob(f"*{suffix}"))
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in [*rng.integers(0, len(good), 60).tolist(), -1]:
        damaged = bytearray(good)
        damaged[place] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(bytes(damaged) if place >= 0 else good[: len(good) // 2])
        found = store.get(KEY)
        assert found is None or (found["psnr"] == 30.5 and found["curve"].tolist() == [0, 1, 2, 3, 4, 5])
    path.write_bytes(re.sub(b"30.5", b"31.5", good) if suffix == ".json" else good[:40])
    assert store.get(KEY) is None


# ---- the job's boundary


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("NYPSFS"), "a fault of this program: KeyError"),
        (OSError(28, "No space left on device"), "No space left"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "not enough memory"),
        (RecursionError("x" * 5000), "RecursionError"),
    ],
)
def test_one_bad_picture_does_not_stop_the_others(
    error: Exception, words: str, run: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = jobs.run.restore_with

    def fail(options: object, picture: pl.Picture, *rest: object, **more: object) -> object:
        if picture.name.endswith("a.png"):
            raise error
        return restore(options, picture, *rest, **more)

    monkeypatch.setattr(jobs.run, "restore_with", fail)
    code, out, err = run("restore", "a.png", "b.png", "-b", "psf.png", "-o", "out", *FEW, "--json")
    assert code == 1
    told = json.loads(out)
    assert [d["picture"] for d in told["done"]] == ["b.png"]
    assert words in told["failed"][0]["error"]
    assert len(told["failed"][0]["error"]) <= 300
    assert "Traceback" not in err
    assert sorted(p.name for p in (files / "out").iterdir()) == ["b.png", "b.png.job.json"]


def test_an_interrupt_before_the_first_iteration_keeps_nothing(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pnpladmm.solvers.annealed.Annealed.step_in", interrupt)
    job = Job(
        str(files / "a.png"), str(files / "psf.png"), str(files / "x.png"), 3.0, keep_interrupted=True, report=True
    )
    with pytest.raises(jobs.Interrupted):
        jobs.run_job(job)
    assert not (files / "x.png").exists()


def test_an_interrupted_picture_is_not_done(files: Path) -> None:
    job = Job(str(files / "a.png"), str(files / "psf.png"), str(files / "x.png"), 3.0, keep_interrupted=True)
    assert jobs.run_job(job, callback=lambda step: True).status == "stopped"
    assert (files / "x.png").exists()
    assert not was_done(job)
    jobs.run_job(job)
    assert was_done(job)
