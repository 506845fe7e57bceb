"""Tiles: the same operators and iterates, and small seams where they are approximate."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

import pnpladmm as pl
from pnpladmm.blur import Blur, common_size, gaussian, motion
from pnpladmm.denoisers.gradient_step import GradientStepDenoiser
from pnpladmm.denoisers.light import LightNet
from pnpladmm.denoisers.network import NetworkDenoiser
from pnpladmm.denoisers.smooth_unet import SmoothUNet
from pnpladmm.tiling import TiledBlur, plan_for, plan_tiles, read_size, solve_by
from pnpladmm.tiling.denoiser import TiledDenoiser, in_tiles
from pnpladmm.tiling.geometry import taken
from pnpladmm.tiling.memory import free_memory
from pnpladmm.tiling.plan import Plan
from pnpladmm.tiling.window import window_for_scene

BOUNDARIES = ("unknown", "circular", "replicate", "reflect", "zero")
ORDERS = ("convolve-then-weight", "weight-then-convolve")


def random_blur(boundary: str, order: str, kernel: tuple[int, int], channels: int = 1) -> pl.SpatiallyVaryingBlur:
    generator = torch.Generator().manual_seed(3)
    h, w = 61, 50
    on_scene = boundary == "unknown" and order == "weight-then-convolve"
    size = (h + kernel[0] - 1, w + kernel[1] - 1) if on_scene else (h, w)
    kernels = torch.randn(3, channels, *kernel, generator=generator, dtype=torch.float64)
    weights = torch.randn(3, *size, generator=generator, dtype=torch.float64)
    weights[1, :, 20:] = 0
    return pl.SpatiallyVaryingBlur(kernels, weights, boundary, order)


def photograph(height: int, width: int) -> Tensor:
    """Edges and texture, (1, 3, H, W)."""
    y, x = torch.meshgrid(torch.arange(height) / 40, torch.arange(width) / 40, indexing="ij")
    waves = torch.stack([torch.sin(x * y), torch.cos(3 * x - y), torch.sin(2 * y) * torch.cos(x)])
    edges = ((x * 2).floor() + (y * 1.5).floor()) % 3 / 3
    return (0.35 + 0.15 * waves + 0.4 * edges * torch.tensor([1, 0.7, 0.4]).view(3, 1, 1))[None].float()


@pytest.mark.parametrize(("boundary", "order"), list(product(BOUNDARIES, ORDERS)))
def test_the_operator_in_tiles_is_the_operator(boundary, order):
    for kernel, channels in (((5, 4), 1), ((1, 7), 3)):
        blur = random_blur(boundary, order, kernel, channels)
        tiled = TiledBlur(blur, 17)
        generator = torch.Generator().manual_seed(4)
        x = torch.randn(2, channels, *blur.scene, generator=generator, dtype=torch.float64)
        y = torch.randn(2, channels, *blur.observed, generator=generator, dtype=torch.float64)
        torch.testing.assert_close(tiled.forward(x), blur.forward(x), rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(tiled.adjoint(y), blur.adjoint(y), rtol=1e-11, atol=1e-11)
        assert len(tiled.windows) > 8
        assert pl.check_adjoint(tiled, (1, channels, *blur.scene)) < 1e-13


@pytest.mark.parametrize(("boundary", "order"), list(product(BOUNDARIES, ORDERS)))
def test_a_window_depends_on_the_scene_that_it_states(boundary, order):
    blur = random_blur(boundary, order, (5, 4))
    x = torch.randn(1, 1, *blur.scene, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    whole = blur.forward(x)
    for tile in plan_tiles(blur.scene, 40, 8, 4, boundary == "circular"):
        window = window_for_scene(blur, *tile.extent)
        assert window.scene_span == tile.extent
        part = window.forward(taken(x, *tile.extent))
        torch.testing.assert_close(part, taken(whole, *window.observed_span), rtol=1e-11, atol=1e-11)
        # The observation lies in the scene where it says.
        picture = torch.zeros(1, 1, *window.observed, dtype=torch.float64)
        assert window.start(picture).shape[-2:] == window.scene


@pytest.mark.parametrize("size", [(61, 50), (256, 40), (333, 333), (40, 41)])
def test_shares_sum_to_one_and_tiles_are_aligned(size):
    grid = plan_tiles(size, 64, 16, 8)
    total = torch.zeros(size, dtype=torch.float64)
    for tile in grid:
        total[tile.written] += tile.share(total)
        for part, length in zip((tile.rows, tile.columns), size, strict=True):
            begin, end = part.extent
            assert begin % 8 == 0
            assert (length - end) % 8 == 0
            assert end - begin <= 64
            assert begin == 0 or part.core[0] - begin >= 16
            assert end == length or end - part.core[1] >= 16
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-14)


def test_tiles_without_room_are_refused():
    with pytest.raises(pl.InputError, match="allow larger tiles"):
        plan_tiles((500, 500), 100, 48, 16)


@pytest.mark.parametrize("kind", ["light", "drunet"])
def test_a_network_reaches_as_far_as_it_says(kind):
    torch.manual_seed(0)
    if kind == "light":
        network = LightNet(1, (4, 4, 4), (1, 1, 1), (4, 4, 4))
    else:
        from pnpladmm.denoisers.drunet import DRUNet

        network = DRUNet(1, (4, 4, 4, 4), 1)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    network = network.double().eval()
    side = (2 * network.reach + 64) // 8 * 8
    x = torch.rand(1, 1, side, side, dtype=torch.float64)
    y = x.clone()
    y[..., :8, :8] += 1
    changed = (network(x, torch.tensor([0.1])) - network(y, torch.tensor([0.1])))[0, 0].abs().amax(0) > 0
    last = int(torch.nonzero(changed).max())
    assert 0.5 * network.reach < last - 7 <= network.reach


def tiny_light() -> NetworkDenoiser:
    torch.manual_seed(1)
    network = LightNet(1, (4, 4, 4), (1, 1, 1), (4, 4, 4))
    network.initialise()
    return NetworkDenoiser({1: network}, precision=torch.float64)


def test_a_denoiser_in_tiles_is_the_denoiser():
    denoiser = tiny_light()
    tiled = in_tiles(denoiser, 160)
    assert isinstance(tiled, TiledDenoiser)
    x = torch.rand(2, 1, 301, 243)
    torch.testing.assert_close(tiled(x, 0.1), denoiser(x, 0.1), rtol=0, atol=1e-6)
    assert in_tiles(pl.load_denoiser("tv"), 160) is None


def exact_runs(denoiser, boundary="unknown", iterations=4):
    """A certified run undivided and in tiles, in float64."""
    blur = Blur(common_size([gaussian(1.2), motion(5, 30)]), two_halves(70, 250)).operator(boundary)
    sharp = photograph(*blur.scene).double()[:, :1]
    observed = blur.forward(sharp) + 0.02 * torch.randn(
        1, 1, 70, 250, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    whole = pl.Problem(observed, blur, pl.Gaussian(0.02))
    plan = Plan(64, 16, 8, "tiles were asked for")
    divided = pl.Problem(observed, plan.operator(blur), pl.Gaussian(0.02))
    runs = []
    for problem, how in ((whole, None), (divided, plan)):
        method = pl.LADMM.certified(denoiser, problem, 0.03)
        runs.append(solve_by(how, problem, method, iterations, 0.0, None)[0])
    return runs


def two_halves(height: int, width: int) -> Tensor:
    left = torch.linspace(1, 0, width).expand(height, width)
    return torch.stack([left, 1 - left])


def same_certificate(one, other):
    assert one.level is other.level
    assert one.failures == other.failures
    for a, b in zip(one.conditions, other.conditions, strict=True):
        assert (a.left, a.right) == pytest.approx((b.left, b.right), rel=1e-10)


@pytest.mark.parametrize("boundary", ["unknown", "circular"])
def test_certified_iterates_and_certificates_are_those_of_the_undivided_run(boundary):
    torch.manual_seed(0)
    network = SmoothUNet(1, (8, 8, 8), (1, 1, 1))
    network.initialise()
    denoiser = GradientStepDenoiser({1: network}, precision=torch.float64, relaxation=0.5)
    whole, divided = exact_runs(denoiser, boundary)
    torch.testing.assert_close(divided.image, whole.image, rtol=0, atol=1e-10)
    torch.testing.assert_close(divided.state.u, whole.state.u, rtol=0, atol=1e-10)
    for name in ("x_change", "z_change", "u_change", "data_fit", "lagrangian", "objective", "curvature"):
        one, other = getattr(divided.history, name), getattr(whole.history, name)
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12, equal_nan=True)
    same_certificate(divided.certificate, whole.certificate)
    assert len(whole.certificate.conditions) == 2


def test_total_variation_is_applied_undivided_and_stays_proved():
    whole, divided = exact_runs(pl.load_denoiser("tv"))
    torch.testing.assert_close(divided.image, whole.image, rtol=0, atol=1e-9)
    assert divided.certificate.level is whole.certificate.level is pl.Level.PROVED


def untouched(x, sigma):
    return x.clone()


untouched.reach = 0


def blurred(height: int, width: int) -> tuple[np.ndarray, Blur]:
    blur = Blur(common_size([gaussian(1.2), motion(7, 30)]), two_halves(height, width))
    operator = blur.operator("unknown")
    noise = 0.01 * torch.randn(1, 3, height, width, generator=torch.Generator().manual_seed(7))
    observed = operator.forward(photograph(*operator.scene)) + noise
    return observed[0].permute(1, 2, 0).numpy(), blur


def test_restore_in_tiles_is_restore_but_for_small_seams_that_it_states():
    picture, blur = blurred(203, 330)
    whole = pl.restore(picture, blur, noise=0.01, iterations=3)
    tiled = pl.restore(picture, blur, noise=0.01, iterations=3, tiles=224)
    # Three calls do not solve the data steps to the end; all tiles take the same steps, found on samples.
    error = 255 * np.abs(np.asarray(whole) - np.asarray(tiled)).max(-1)
    assert 1e-4 < np.sqrt(np.square(error).mean()) < 0.02
    assert error.max() < 0.3
    note = next(note for note in tiled.notes if "seams" in note)
    assert "in 3 tiles of up to 213x212 with a halo of 48" in note
    stated = float(note.split("at most ")[1].split()[0])
    assert stated == pytest.approx(error.max(), abs=0.05)
    assert tiled.status is pl.Status.FINISHED
    assert len(tiled.history) == 3
    assert [check.size for check in tiled.checks] == pytest.approx([check.size for check in whole.checks], rel=1e-3)


def test_a_budget_decides_and_is_named():
    picture, blur = blurred(203, 330)
    result = pl.restore(picture, blur, noise=0.01, denoiser=untouched, iterations=2, memory="20MB")
    assert any("more than the memory that is allowed" in note for note in result.notes)
    plenty = pl.restore(picture, blur, noise=0.01, denoiser=untouched, iterations=2, memory="20GB")
    assert not any("tiles" in note for note in plenty.notes)


def test_ladmm_by_restore_is_the_same_in_tiles():
    picture, blur = blurred(120, 150)
    runs = [
        pl.restore(picture, blur, noise=0.01, method="certified", denoiser="tv", iterations=3, tiles=tiles)
        for tiles in (None, 96)
    ]
    np.testing.assert_allclose(np.asarray(runs[1]), np.asarray(runs[0]), atol=1e-5)
    assert runs[1].certificate.level is runs[0].certificate.level is pl.Level.PROVED
    assert any("not local" in note for note in runs[1].notes)


def test_stopping_leaves_the_other_tiles_as_they_were():
    picture, blur = blurred(203, 330)
    seen = []

    def stop(progress):
        seen.append((progress.tile, progress.tiles))
        return progress.tile == 1

    result = pl.restore(picture, blur, noise=0.01, denoiser=untouched, iterations=2, tiles=128, callback=stop)
    assert result.status is pl.Status.STOPPED
    assert seen[-1][0] == 1
    assert seen[0][1] > 2
    np.testing.assert_allclose(np.asarray(result)[-5:, -5:], picture[-5:, -5:], atol=1e-5)


def test_pixels_that_do_not_count_over_a_whole_tile():
    picture, blur = blurred(203, 330)
    mask = np.zeros((203, 330), bool)
    mask[:, 100:] = True
    result = pl.restore(picture, blur, noise=0.01, denoiser=untouched, iterations=2, tiles=128, mask=mask)
    assert np.isfinite(np.asarray(result)).all()


def test_what_cannot_be_divided_is_named():
    picture = np.random.default_rng(0).random((300, 300))
    with pytest.raises(pl.InputError, match="cannot be divided into tiles"):
        pl.restore(picture, pl.Mask(torch.ones(300, 300)), noise=0.1, denoiser="tv", tiles=64)
    with pytest.raises(pl.InputError, match="side of at least"):
        pl.restore(picture, np.ones((3, 3)), noise=0.1, denoiser="light", tiles=64)
    for memory in ("3 apples", -1, True, "1KB", "1e9e9"):
        with pytest.raises(pl.InputError, match="memory = "):
            pl.restore(picture, np.ones((3, 3)), noise=0.1, memory=memory)
    with pytest.raises(pl.InputError, match="tiles = 0"):
        pl.restore(picture, np.ones((3, 3)), noise=0.1, tiles=0)


def test_memory_sizes_and_plans(monkeypatch):
    assert read_size("2GiB") == 2**31
    blur = Blur(gaussian(1.0)[None], torch.ones(1, 3000, 4000)).operator()
    light = pl.load_denoiser("light")
    assert plan_for((1, 3, 3000, 4000), 4, blur, light, 10**11, None) is None
    plan = plan_for((1, 3, 3000, 4000), 4, blur, light, 3 * 10**9, None)
    assert plan is not None
    assert 700 < plan.side < 1100  # 0.4 GB are the program itself
    assert plan.halo % 8 == 0
    # The kernels lie on the CPU; what counts is where the pictures will.
    free = {"cpu": 10**12, "cuda": 5 * 10**9}
    monkeypatch.setattr("pnpladmm.tiling.plan.free_memory", lambda device: free[device.type])
    assert plan_for((1, 3, 3000, 4000), 4, blur, light, None, None, torch.device("cpu")) is None
    assert plan_for((1, 3, 3000, 4000), 4, blur, light, None, None, torch.device("cuda")) is not None
    # Less halo on a GPU; on a CPU the caches decide.
    sides = [plan_for((1, 3, 3000, 4000), 4, blur, light, 8 * 10**9, None, torch.device(at)) for at in ("cpu", "cuda")]
    assert sides[0].side == 1536 < sides[1].side


def test_what_torch_keeps_of_a_gpu_for_the_next_picture_is_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 80)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 10)
    assert free_memory(torch.device("cuda")) == 72
