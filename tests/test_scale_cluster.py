"""Tiles and pictures as tasks, on a cluster that loses a worker or its scheduler."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pnpladmm as pl
from pnpladmm.jobs import Failure, Job, Outcome, Skipped, run_jobs
from pnpladmm.scale import restore_large
from pnpladmm.scale.engine import Engine
from pnpladmm.tensors import InputError
from scale_cases import settings

zarr = pytest.importorskip("zarr", reason="needs the extra scale: pip install 'pnpladmm[scale]'")


def test_many_pictures_skip_what_is_done_and_list_what_failed(scene, tmp_path):
    names = ["a.npy", "b.npy", "broken.npy"]
    for name in names[:2]:
        np.save(tmp_path / name, np.random.default_rng(len(name)).random((64, 64)).astype(np.float32))
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY broken")
    out = tmp_path / "out"
    out.mkdir()
    jobs = [
        Job(str(tmp_path / n), str(scene / "psf.npy"), str(out / n), noise=5.0, denoiser="tv", iterations=2)
        for n in names
    ]
    assert [type(o) for o in run_jobs(jobs)] == [Outcome, Outcome, Failure]
    assert [type(o) for o in run_jobs(jobs)] == [Skipped, Skipped, Failure]
    np.save(tmp_path / "a.npy", np.zeros((64, 64), np.float32) + 0.5)
    assert [type(o) for o in run_jobs(jobs)] == [Skipped, Outcome, Failure]


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_restores_the_same_picture(scene, expected, cluster):
    address, _, workers = cluster
    seen = []

    def tell(done, total, rate):
        if not seen:
            workers[0].kill()
        seen.append(done)

    output = scene / "cluster.zarr"
    restore_large(settings(scene, "in.zarr"), output, side=192, scheduler=address, tell=tell)
    assert seen[-1] >= 3
    found = zarr.open(output / "0", mode="r")[:].astype(int)
    np.testing.assert_allclose(found, expected.astype(int), atol=2)  # workers may use another number of threads


@pytest.mark.slow
def test_a_scheduler_that_is_gone_is_one_line_and_the_run_goes_on_later(scene, expected, cluster):
    address, scheduler, _ = cluster
    output = scene / "gone.zarr"
    with pytest.raises(pl.InputError, match="scheduler is gone"):
        restore_large(settings(scene, "in.zarr"), output, side=192, scheduler=address, tell=lambda *_: scheduler.kill())
    with pytest.raises(pl.InputError, match="nobody answers"):
        restore_large(settings(scene, "in.zarr"), output, side=192, scheduler="tcp://127.0.0.1:9")
    assert (
        restore_large(settings(scene, "in.zarr"), output, side=192)
        .done.notes[-2]
        .endswith("tiles of an earlier run were kept")
    )


def test_a_connection_that_breaks_is_a_scheduler_that_is_gone() -> None:
    """Also while the result of a tile that is done comes over it; a fault of the tile is named as one."""
    distributed = pytest.importorskip("distributed")

    @dataclass(frozen=True)
    class Future:
        error: Exception
        status: str = "error"

        def result(self) -> None:
            raise self.error

    class Client:
        def submit(self, task: Callable[..., None], error: Exception, **_: Any) -> Future:
            return Future(error)

    for error, words in (
        (distributed.comm.CommClosedError("in <TCP>"), "the scheduler is gone"),
        (OSError("no space left"), "a tile failed"),
    ):
        connection = SimpleNamespace(**vars(distributed) | {"as_completed": iter})
        with pytest.raises(InputError, match=words):
            list(Engine(Client(), connection).run(print, [(error,)]))
