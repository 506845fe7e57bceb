"""Networks as denoisers: homogeneity, padding, channels, batches, limits of the light network, adapters."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pnpladmm.denoisers.base import Promise, promise_of
from pnpladmm.denoisers.building import multiply_adds_per_pixel, new_network
from pnpladmm.denoisers.callables import as_denoiser
from pnpladmm.denoisers.drunet import DRUNet
from pnpladmm.denoisers.light import LightNet
from pnpladmm.denoisers.loading import load_network
from pnpladmm.denoisers.network import NetworkDenoiser
from pnpladmm.tensors import InputError

SMALL = {"drunet": (4, 6, 8, 8), "light": (8, 12, 16)}


def small(name: str, channels: int = 3) -> DRUNet | LightNet:
    """A small network with blocks that do something (the start for training is near Id)."""
    torch.manual_seed(1)
    network = new_network(name, channels, SMALL[name], 1)
    for parameter in network.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return network


class Mean(nn.Module):
    """A 'network' that needs its stride: the mean of each 8x8 cell, minus sigma."""

    stride = 8

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        assert x.shape[-2] % 8 == x.shape[-1] % 8 == 0
        cells = nn.functional.avg_pool2d(x, 8)
        return nn.functional.interpolate(cells, scale_factor=8) - sigma.reshape(-1, 1, 1, 1)


@pytest.mark.parametrize("name", ["drunet", "light"])
@settings(max_examples=10, deadline=None)
@given(c=st.floats(1e-3, 1e3), sigma=st.floats(0.0, 0.5))
def test_networks_are_homogeneous_of_degree_one(name: str, c: float, sigma: float) -> None:
    network = small(name).double()
    x = torch.rand(1, 3, 16, 24, dtype=torch.float64)
    level = torch.tensor([sigma], dtype=torch.float64)
    scaled = network(c * x, c * level)
    assert torch.allclose(scaled, c * network(x, level), rtol=1e-9, atol=1e-12 * c)


@pytest.mark.parametrize("name", ["drunet", "light"])
def test_scale_and_a_sigma_beyond_the_range_change_rounding_only(name: str) -> None:
    x, sigma = torch.rand(1, 3, 16, 16), 0.9
    plain = NetworkDenoiser({3: small(name)}, sigma_max=10.0)(x, sigma)
    assert torch.allclose(NetworkDenoiser({3: small(name)})(x, sigma), plain, atol=1e-5)
    counts = NetworkDenoiser({3: small(name)}, scale=65535.0)
    assert counts.sigma_range == (0.0, 65535.0 * 60 / 255)
    assert torch.allclose(counts(65535 * x, 65535 * sigma) / 65535, plain, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 8), (8, 8), (13, 30), (16, 17)])
@pytest.mark.parametrize("name", ["drunet", "light"])
def test_any_size_comes_back_and_padding_is_mirrored_and_cut_off_exactly(name: str, shape: tuple[int, int]) -> None:
    x = torch.rand(2, 3, *shape)
    network = small(name)
    restored = NetworkDenoiser({3: network})(x, 0.1)
    height, width = shape
    padding = ((0, 0), (0, 0), (0, -height % 8), (0, -width % 8))
    padded = torch.from_numpy(np.pad(x.numpy(), padding, mode="symmetric"))
    with torch.no_grad():
        direct = torch.cat([network(padded[i : i + 1], torch.tensor([0.1])) for i in range(2)])
    assert restored.shape == x.shape
    assert torch.allclose(restored, direct[..., :height, :width], atol=1e-6)


def test_noise_at_the_border_is_no_streak_beyond_it() -> None:
    ramp = torch.linspace(0.2, 0.8, 65)
    clean = ramp.reshape(1, 1, -1, 1) * ramp.flip(0)  # smooth, 65x65: 7 rows and columns are added
    clean = clean.expand(16, 3, -1, -1)
    noisy = clean + 50 / 255 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    light = load_network("light")
    error = (light(noisy, 50 / 255) - clean).square()
    # The same rows and columns where no row and no column has to be added.
    fitting = (light(noisy[..., 1:, 1:], 50 / 255) - clean[..., 1:, 1:]).square()
    for border, reference in ((error[..., -4:], fitting[..., -4:]), (error[..., -4:, :], fitting[..., -4:, :])):
        assert border.mean() < 2.5 * reference.mean()  # 1.8; 15 to 21 with streaks


def test_a_picture_does_not_depend_on_its_neighbours_to_the_last_bit() -> None:
    denoiser = NetworkDenoiser({3: small("light")})
    x, sigma = torch.rand(3, 3, 21, 18), torch.tensor([0.02, 0.1, 0.9])
    together = denoiser(x, sigma)
    for i in range(3):
        assert torch.equal(together[i : i + 1], denoiser(x[i : i + 1], float(sigma[i])))
    assert not torch.equal(together[:1], denoiser(x[:1], 0.1))


def test_channels_choose_their_network() -> None:
    colour, grey = small("light", 3), small("light", 1)
    both = NetworkDenoiser({3: colour, 1: grey})
    assert both.channels == (1, 3)
    x = torch.rand(2, 5, 8, 8)
    sigma = torch.tensor([0.05, 0.2])
    by_channel = torch.cat([both(x[:, i : i + 1], sigma) for i in range(5)], 1)
    assert torch.equal(both(x, sigma), by_channel)
    rgb = torch.rand(1, 3, 8, 8)
    assert torch.equal(both(rgb, 0.1), NetworkDenoiser({3: small("light", 3)})(rgb, 0.1))


def test_grey_pictures_through_a_colour_network_are_told_of_the_common_noise() -> None:
    told: list[Tensor] = []

    class Told(Mean):
        def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
            told.append(sigma.clone())
            return x

    x = torch.rand(1, 2, 8, 8)
    assert torch.allclose(NetworkDenoiser({3: Told()})(x, 0.1), x)
    assert all(math.isclose(float(sigma), math.sqrt(3) * 0.1, rel_tol=1e-6) for sigma in told)


def test_dtype_zero_sigma_and_gradients() -> None:
    denoiser = NetworkDenoiser({3: small("light")})
    x = torch.rand(2, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    restored = denoiser(x, torch.tensor([0.0, 0.1]))
    assert restored.dtype == torch.float64
    assert torch.equal(restored[0], x[0])
    (slope,) = torch.autograd.grad(restored[0].sum(), x, retain_graph=True)
    assert torch.equal(slope[0], torch.ones_like(slope[0]))
    with torch.no_grad():
        assert not denoiser(x, 0.1).requires_grad
    assert torch.allclose(restored[1].float(), denoiser(x.float(), 0.1)[1], atol=1e-6)


def test_half_precision_weights_take_and_return_float32() -> None:
    x = torch.rand(1, 3, 16, 16)
    exact = NetworkDenoiser({3: small("light")})(x, 0.1)
    half = NetworkDenoiser({3: small("light")}, precision=torch.bfloat16)(x, 0.1)
    assert half.dtype == torch.float32
    assert 0 < float((half - exact).abs().max()) < 0.05


@pytest.mark.parametrize("sigma", [-0.1, math.nan, math.inf, torch.ones(3), torch.ones(2, 1)])
def test_a_bad_sigma_is_refused(sigma: float | Tensor) -> None:
    with pytest.raises(InputError, match="sigma"):
        NetworkDenoiser({3: Mean()})(torch.rand(2, 3, 8, 8), sigma)


def test_bad_settings_and_pictures_are_refused() -> None:
    with pytest.raises(InputError, match="without networks"):
        NetworkDenoiser({})
    with pytest.raises(InputError, match="scale = 0"):
        NetworkDenoiser({3: Mean()}, scale=0.0)
    for shape in [(3, 8, 8), (0, 3, 8, 8), (1, 3, 0, 8)]:
        with pytest.raises(InputError, match="pictures of shape"):
            NetworkDenoiser({3: Mean()})(torch.rand(*shape), 0.1)
    with pytest.raises(InputError, match="widths"):
        new_network("light", 3, (4, 4))
    with pytest.raises(InputError, match="unet"):
        new_network("unet", 3)


def test_the_light_network_keeps_its_limits() -> None:
    for channels in (1, 3):
        with torch.device("meta"):
            drunet, light = DRUNet(channels), LightNet(channels)
        assert multiply_adds_per_pixel(light) <= multiply_adds_per_pixel(drunet) / 10
        assert 2 * sum(parameter.numel() for parameter in light.parameters()) <= 12_000_000


def test_any_callable_is_a_denoiser_and_promises_nothing_unless_told() -> None:
    denoiser = as_denoiser(lambda x, sigma: (1 - sigma) * x)
    x = torch.rand(1, 1, 4, 4)
    assert torch.equal(denoiser(x, 0.25), 0.75 * x)
    assert promise_of(denoiser) is Promise.NONE
    assert promise_of(as_denoiser(lambda x, sigma: x, Promise.PROX)) is Promise.PROX
    assert promise_of(NetworkDenoiser({3: Mean()})) is Promise.MMSE
    network = NetworkDenoiser({3: Mean()})
    assert as_denoiser(network, Promise.MMSE) is network


def test_a_callable_that_returns_no_picture_is_refused() -> None:
    x = torch.rand(1, 3, 4, 4)
    with pytest.raises(InputError, match="returned shape"):
        as_denoiser(lambda x, sigma: x[..., :2])(x, 0.1)
    with pytest.raises(InputError, match="returned a tuple"):
        as_denoiser(lambda x, sigma: (x,))(x, 0.1)  # type: ignore[arg-type, return-value]
    with pytest.raises(InputError, match="no denoiser"):
        as_denoiser("drunet")  # type: ignore[arg-type]


def test_a_module_with_forward_x_sigma_works_as_deepinv_denoisers_do() -> None:
    class Foreign(nn.Module):
        """float32 parameters, sigma a float or (B,), dropout that must be off."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1, bias=False)
            self.dropout = nn.Dropout(0.9)

        def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
            level = sigma.reshape(-1, 1, 1, 1) if isinstance(sigma, Tensor) else sigma
            assert x.dtype == torch.float32
            return self.dropout(self.conv(x)) - level

    denoiser = as_denoiser(Foreign())
    x = torch.rand(2, 3, 5, 5, dtype=torch.float64)
    restored = denoiser(x, 0.1)
    assert restored.dtype == torch.float64
    assert not restored.requires_grad
    assert torch.allclose(restored, denoiser(x, torch.full((2,), 0.1, dtype=torch.float64)))
    assert promise_of(denoiser) is Promise.NONE
