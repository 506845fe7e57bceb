"""What the tests of blur files share: kernels that no flip leaves alone, and point sources put through a blur."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from pnpladmm.blur import Blur

SIZE = (48, 60)
"""Not square, so that exchanged axes show."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Transforms of so small pictures gain nothing from threads, and wait long for them on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def comet(
    size: int = 11, sigma: float = 1.3, tail: float = 2.5, turn: float = 25.0, shift: tuple[float, float] = (0, 0)
):
    """A smooth PSF with a tail: its centroid is off its core, and no flip or transposition leaves it as it is."""
    y, x = np.mgrid[:size, :size] - size // 2
    return comet_at(x, y, sigma, tail, turn, shift)


def comet_at(x, y, sigma: float = 1.3, tail: float = 2.5, turn: float = 25.0, shift: tuple[float, float] = (0, 0)):
    """Its surface brightness at offsets x (right) and y (down) from the source, in pixels; total 1."""
    x, y = x - shift[0], y - shift[1]
    a = np.deg2rad(turn)
    along, across = x * np.cos(a) + y * np.sin(a), -x * np.sin(a) + y * np.cos(a)
    core = np.exp(-(x**2 + y**2) / (2 * sigma**2)) / (2 * np.pi * sigma**2)
    wide, narrow = 1.6 * sigma, 1.1 * sigma
    far = np.exp(-((along - tail) ** 2) / (2 * wide**2) - across**2 / (2 * narrow**2)) / (2 * np.pi * wide * narrow)
    return 0.7 * core + 0.3 * far


def unit(kernel):
    return kernel / kernel.sum()


def shown(blur: Blur, row: int, column: int, boundary: str = "unknown") -> np.ndarray:
    """What the operator makes of a point source in this pixel: (C, H, W)."""
    operator = blur.operator(boundary)
    top, left = (k - 1 - k // 2 if boundary == "unknown" else 0 for k in blur.kernel_size)
    scene = torch.zeros(1, blur.kernels.shape[1], *operator.scene, dtype=torch.float64)
    scene[..., row + top, column + left] = 1
    return operator.forward(scene)[0].numpy()


def centroid(picture: np.ndarray) -> tuple[float, float]:
    """(x, y) of the light in (H, W)."""
    y, x = np.mgrid[: picture.shape[0], : picture.shape[1]]
    return float((picture * x).sum() / picture.sum()), float((picture * y).sum() / picture.sum())


def placed(kernel: np.ndarray, row: int, column: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """A kernel as it must show on the picture: its index k // 2 on the source."""
    kh, kw = kernel.shape
    canvas = np.zeros((size[0] + 2 * kh, size[1] + 2 * kw))
    top, left = row + kh - kh // 2, column + kw - kw // 2
    canvas[top : top + kh, left : left + kw] = kernel
    return canvas[kh : kh + size[0], kw : kw + size[1]]


def check_shows(blur: Blur, row: int, column: int, expected: np.ndarray, tolerance: float = 0.01) -> None:
    """The operator shows `expected` (H, W) for a point source: values to 1 %, place to 0.05 pixel, psf_at alike."""
    picture = shown(blur, row, column)[0]
    error = np.linalg.norm(picture - expected) / np.linalg.norm(expected)
    assert error < tolerance, f"{100 * error:.2f} % off"
    assert np.allclose(centroid(picture), centroid(expected), atol=0.05)
    psf = blur.psf_at(row, column)[0].numpy()
    assert np.allclose(placed(psf, row, column, blur.size), picture, atol=1e-6 * np.abs(psf).max())
