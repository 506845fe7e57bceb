"""Tiles that exchange their borders in each iteration: the iterates and the certificate of the undivided run."""

from pathlib import Path

import numpy as np
import pytest
import torch

import pnpladmm as pl
from pnpladmm.blur import read_blur
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.smooth_unet import SmoothUNet
from pnpladmm.jobs import Failure, Job, run_jobs
from pnpladmm.restoration.policy import Pages, prepare
from pnpladmm.restoration.units import Units
from pnpladmm.scale import Settings, exact, iterate, restore_large
from pnpladmm.solvers import make_method

SIZE = (290, 296)
NOISE = 0.02


@pytest.fixture
def folder(tmp_path):
    """A picture in float64 with two hot pixels, and a blur of three PSFs."""
    y, x = (part / 30 for part in np.mgrid[: SIZE[0], : SIZE[1]])
    sharp = 0.4 + 0.2 * np.sin(x * y) + 0.3 * ((3 * x).astype(int) % 2)
    noise = np.random.default_rng(0).normal(0, NOISE, sharp.shape)
    picture = torch.nn.functional.avg_pool2d(torch.tensor(sharp)[None], 5, 1, 2, count_include_pad=False)[0].numpy()
    picture += noise
    picture[60, 100] = picture[120, 130] = 5.0
    np.save(tmp_path / "in.npy", picture)
    grid = np.mgrid[-3:4, -3:4]
    psfs = np.stack([np.exp(-(grid**2).sum(0) / (2 * s**2)) for s in (1, 1.3, 1.6)])
    psfs[2] = np.roll(psfs[2], 1, 0)  # no symmetry: a transposed kernel would be seen
    weights = np.stack([1 + np.cos(y / 2 + i) * np.cos(x / 3 - i) for i in range(3)])
    np.savez(tmp_path / "psf.npz", kernels=psfs / psfs.sum((1, 2), keepdims=True), weights=weights / weights.sum(0))
    return tmp_path


def settings(folder: Path, **changed) -> Settings:
    given = {
        "picture": str(folder / "in.npy"), "blur": str(folder / "psf.npz"), "noise": NOISE, "denoiser": "prox-drunet",
        "iterations": 3, "strength": 1.0, "saturation": True, "device": None, "method": "certified",
    }  # fmt: skip
    return Settings(**(given | changed))


@pytest.fixture
def small_network(monkeypatch):
    """A gradient step of short reach, in float64, in place of the shipped one."""
    torch.manual_seed(0)
    network = SmoothUNet(1, (4, 4, 4), (1, 0, 0))
    network.initialise()
    denoiser = GradientStepDenoiser({1: network}, precision=torch.float64, relaxation=0.5, name="prox-drunet")
    monkeypatch.setattr(iterate, "exact_denoiser", lambda settings: denoiser)
    monkeypatch.setattr(exact, "exact_denoiser", lambda settings: denoiser)
    return denoiser


def undivided(given: Settings, denoiser):
    """The same run on the whole picture in memory."""
    picture = pl.read_picture(given.picture)
    operator = read_blur(given.blur, SIZE).operator("unknown")
    pages = Pages(picture, noise=torch.tensor([NOISE], dtype=torch.float64))
    prepared = prepare(pages, operator, given.options(NOISE))
    units = Units.of(prepared.problem, prepared.noise)
    problem, noise = units.problem(prepared.problem), units.noise(prepared.noise)
    made = make_method("certified", denoiser, problem, noise)
    method = pl.LADMM(made.denoiser, made.sigma_d, beta=made.beta, L_x=made.L_x)
    result = pl.solve(problem, method, given.iterations, 1e-4)
    return result, picture.scale * prepared.problem.crop_to_observed(units.back(result.image))


def test_iterates_history_and_certificate_are_those_of_the_undivided_run(folder, small_network, monkeypatch):
    given = settings(folder)
    whole, image = undivided(given, small_network)
    kept = {}
    monkeypatch.setattr(exact, "_history", lambda *a, inner=exact._history: kept.setdefault("history", inner(*a)))
    done = restore_large(given, folder / "out.npy", side=288)
    assert done.tiles == 4
    np.testing.assert_allclose(np.load(folder / "out.npy"), image[0, 0].numpy(), rtol=0, atol=1e-10)
    for name in ("x_change", "z_change", "u_change", "data_fit", "objective", "lagrangian"):
        one, other = getattr(kept["history"], name), getattr(whole.history, name)
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12, equal_nan=True)
    certificate = done.done.certificate
    assert certificate.level is whole.certificate.level
    assert certificate.failures == whole.certificate.failures
    assert len(certificate.conditions) == 2
    for a, b in zip(certificate.conditions, whole.certificate.conditions, strict=True):
        assert (a.left, a.right) == pytest.approx((b.left, b.right), rel=1e-10)
    assert not (folder / "out.npy.tiles").exists()


def test_an_interrupted_run_goes_on_with_the_iteration_that_it_was_in(folder, small_network):
    class Enough(Exception):
        pass

    def stop(done, total, rate):
        if done == 6:
            raise Enough

    given = settings(folder, iterations=2)
    restore_large(given, folder / "whole.npy", side=288)
    with pytest.raises(Enough):
        restore_large(given, folder / "out.npy", side=288, tell=stop)
    tiles = folder / "out.npy.tiles"
    assert len(list(tiles.glob("state-2-*.json"))) in (1, 2)
    told = []
    restore_large(given, folder / "out.npy", side=288, tell=lambda *now: told.append(now))
    assert len(told) in (2, 3)
    assert told[-1][:2] == (8, 8)
    assert (folder / "out.npy").read_bytes() == (folder / "whole.npy").read_bytes()


def test_what_cannot_be_exact_in_parts_is_one_line(folder):
    for match, changed in (
        ("tv needs the whole picture", {"denoiser": "tv"}),
        ("side of at least", {"denoiser": "light"}),
    ):
        with pytest.raises(pl.InputError, match=match) as error:
            restore_large(settings(folder, **changed), folder / "bad.npy", side=150)
        assert "\n" not in str(error.value)
    job = Job(str(folder / "in.npy"), str(folder / "psf.npz"), str(folder / "out.zarr"), method="admm")
    (failure,) = run_jobs([job])
    assert isinstance(failure, Failure)
    assert "method admm needs the whole picture: in parts, fast, ladmm, certified" in failure.error


@pytest.mark.slow
def test_a_cluster_iterates_as_one_process_does_and_survives_the_loss_of_a_worker(tmp_path, cluster):
    pytest.importorskip("zarr")
    address, _, workers = cluster
    picture = 0.5 + 0.3 * np.sin(np.mgrid[:150, :470].prod(0) / 3000)
    np.save(tmp_path / "in.npy", (picture + np.random.default_rng(1).normal(0, NOISE, picture.shape)).astype("f4"))
    np.save(tmp_path / "psf.npy", np.ones((5, 5)) / 25)
    given = settings(tmp_path, blur=str(tmp_path / "psf.npy"), denoiser="light", method="ladmm", iterations=2)
    alone = restore_large(given, tmp_path / "alone.npy", side=312)
    seen = []

    def tell(done, total, rate):
        if len(seen) == 3:
            workers[0].kill()
        seen.append(done)

    together = restore_large(given, tmp_path / "together.npy", side=312, scheduler=address, tell=tell)
    assert len(seen) == 2 * alone.tiles >= 8
    assert together.done.certificate.level is alone.done.certificate.level is pl.Level.OUTSIDE
    # Workers may use another number of threads.
    np.testing.assert_allclose(np.load(tmp_path / "together.npy"), np.load(tmp_path / "alone.npy"), atol=1e-5)
