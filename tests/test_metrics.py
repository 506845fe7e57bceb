"""PSNR and SSIM against scikit-image; LPIPS against an independent computation and torchmetrics' own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import skimage.data
import torch
from numpy.lib.stride_tricks import sliding_window_view
from safetensors.torch import save_file
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from torch import Tensor

import pnpladmm as pl
from pnpladmm.metrics import PAPER, PAPER_CODE, STANDARD, Convention, load_lpips, psnr, ssim
from pnpladmm.places import shared_folder

LPIPS_FOLDER = shared_folder("lpips")


def photographs(side: int = 80, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Five crops of real pictures, flat and busy, and noisy, shifted versions that leave [0, 1]."""
    crops = [skimage.data.astronaut()[i : i + side, i : i + side] for i in (0, 130, 300)]
    crops += [skimage.data.rocket()[:side, :side], skimage.data.coffee()[100 : 100 + side, 200 : 200 + side]]
    sharp = torch.from_numpy(np.stack(crops) / 255).permute(0, 3, 1, 2).to(dtype)
    noise = torch.randn(sharp.shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
    strength = torch.tensor([0.01, 0.03, 0.06, 0.1, 0.2], dtype=dtype).view(-1, 1, 1, 1)
    return sharp.roll(1, -1) + strength * noise, sharp


def scikit_ssim(x: Tensor, reference: Tensor, data_range: float = 1.0) -> list[float]:
    return [
        structural_similarity(
            a.permute(1, 2, 0).double().numpy(),
            b.permute(1, 2, 0).double().numpy(),
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=data_range,
            channel_axis=-1,
        )
        for a, b in zip(x, reference, strict=True)
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("convention", [STANDARD, Convention(border=7), Convention(clip=True), PAPER])
def test_psnr_and_ssim_equal_scikit_image(convention: Convention, dtype: torch.dtype) -> None:
    x, reference = photographs(dtype=dtype)
    b = convention.border
    inner = slice(b, -b or None)
    shown = (x.clamp(0, 1) if convention.clip else x)[..., inner, inner]
    sharp = reference[..., inner, inner]
    wanted = [
        peak_signal_noise_ratio(r.double().numpy(), e.double().numpy(), data_range=1)
        for r, e in zip(sharp, shown, strict=True)
    ]
    torch.testing.assert_close(psnr(x, reference, convention), torch.tensor(wanted).double(), rtol=1e-12, atol=0)
    found = ssim(x, reference, convention)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, torch.tensor(scikit_ssim(shown, sharp)).double(), rtol=0, atol=1e-12)
    assert ((found > 0.03) & (found < 0.9)).all()  # neither trivial


def test_grey_pictures_and_pictures_alone() -> None:
    x, reference = photographs()
    together = ssim(x, reference), psnr(x, reference)
    for i in range(len(x)):
        assert ssim(x[i : i + 1], reference[i : i + 1])[0] == pytest.approx(together[0][i].item(), abs=1e-14)
        assert psnr(x[i : i + 1], reference[i : i + 1])[0] == together[1][i]
    grey = ssim(x[:, :1], reference[:, :1])
    np.testing.assert_allclose(grey, scikit_ssim(x[:, :1], reference[:, :1]), atol=1e-13)


def test_the_same_picture() -> None:
    _, reference = photographs()
    assert torch.isinf(psnr(reference, reference)).all()
    torch.testing.assert_close(ssim(reference, reference), torch.ones(5).double(), rtol=0, atol=1e-13)


def test_papers_code_pools_four_pictures() -> None:
    """One error for pictures 0 to 3, one for the rest; the range of SSIM from the pictures themselves."""
    x, reference = photographs()
    x, reference = 0.2 + 0.5 * x, 0.2 + 0.5 * reference  # a range other than 1
    shown, sharp = (t[..., 17:-17, 17:-17] for t in (x.clamp(0, 1), reference))
    error = (shown - sharp).square()
    wanted = [-10 * np.log10(float(error[:4].mean()))] * 4 + [-10 * np.log10(float(error[4:].mean()))]
    np.testing.assert_allclose(psnr(x, reference, PAPER_CODE), wanted, rtol=1e-12)
    values = []
    for part in (slice(0, 4), slice(4, 5)):
        span = max(float(t[part].max() - t[part].min()) for t in (shown, sharp))
        values += scikit_ssim(shown[part], sharp[part], span)
    np.testing.assert_allclose(ssim(x, reference, PAPER_CODE), values, atol=1e-12)
    assert psnr(x, reference, PAPER_CODE).mean() < psnr(x, reference, PAPER).mean() - 0.3


def test_papers_code_is_torchmetrics_as_it_was_called() -> None:
    """PSNR of a batch of four is what their call gives."""
    metrics = pytest.importorskip("torchmetrics.functional.image")
    x, reference = (t[:4] for t in photographs(dtype=torch.float32))
    shown, sharp = (t[..., 17:-17, 17:-17] for t in (x.clamp(0, 1), reference))
    wanted = metrics.peak_signal_noise_ratio(sharp, shown, data_range=1.0)
    assert psnr(x, reference, PAPER_CODE).mean() == pytest.approx(float(wanted), abs=1e-4)


def test_flat_pictures_have_a_similarity() -> None:
    flat = torch.full((1, 3, 60, 60), 0.5)
    assert ssim(flat, flat, PAPER_CODE)[0] == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: psnr(x, x, Convention(border=20)), "border of 20"),
        (lambda x: psnr(x, x[..., :-1], PAPER), "one shape"),
        (lambda x: ssim(x[..., :8, :], x[..., :8, :]), "window is 11x11"),
        (lambda x: Convention(border=-1), "border = -1"),
        (lambda x: Convention(pooled=0), "pooled = 0"),
        (lambda x: load_lpips("squeeze"), "squeeze"),
        (lambda x: load_lpips("alex", "nothing.safetensors"), "nothing.safetensors"),
    ],
)
def test_bad_input(call: object, words: str) -> None:
    with pytest.raises(pl.InputError, match=words):
        call(torch.rand(1, 3, 40, 40))  # type: ignore[operator]


def test_torchmetrics_is_asked_for_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchmetrics.functional.image", None)
    x = torch.rand(1, 3, 32, 32)
    with pytest.raises(pl.InputError, match=r"pnpladmm\[experiments\]"):
        ssim(x, x)
    psnr(x, x, Convention(border=3))  # needs nothing


def test_importing_the_package_imports_no_metrics_library() -> None:
    code = "import sys, pnpladmm, pnpladmm.metrics; sys.exit(any(n in sys.modules for n in ('torchmetrics', 'optuna')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# LPIPS

TOPOLOGY = {
    # (padding, stride, window of the max-pooling before it or 0, is a tap) of each convolution
    "alex": [(2, 4, 0, 1), (2, 1, 3, 1), (1, 1, 3, 1), (1, 1, 0, 1), (1, 1, 0, 1)],
    "vgg": [
        (1, 1, p, t) for p, t in zip((0, 0, 2, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0), (0, 1) * 2 + (0, 0, 1) * 3, strict=True)
    ],
}


def reference_lpips(trunk: str, tensors: dict[str, Tensor], x: np.ndarray, y: np.ndarray) -> float:
    """LPIPS of two pictures (3, H, W) in [-1, 1] in plain numpy, float64, one layer after the other."""
    shift, scale = np.array([-0.030, -0.088, -0.188]), np.array([0.458, 0.448, 0.450])
    layers = [(p - shift[:, None, None]) / scale[:, None, None] for p in (x, y)]
    distance, head = 0.0, 0
    for i, (padding, stride, window, tap) in enumerate(TOPOLOGY[trunk]):
        weight, bias = (tensors[f"features.{i}.{n}"].double().numpy() for n in ("weight", "bias"))
        for side, f in enumerate(layers):
            if window:
                f = sliding_window_view(f, (window, window), axis=(1, 2))[:, ::2, ::2].max((-2, -1))
            f = np.pad(f, ((0, 0), (padding, padding), (padding, padding)))
            k = weight.shape[-1]
            patches = sliding_window_view(f, (k, k), axis=(1, 2))[:, ::stride, ::stride]
            f = np.tensordot(weight, patches, ((1, 2, 3), (0, 3, 4))) + bias[:, None, None]
            layers[side] = np.maximum(f, 0)
        if tap:
            a, b = (f / (np.linalg.norm(f, axis=0) + 1e-10) for f in layers)
            weights = tensors[f"heads.{head}.weight"].double().numpy().ravel()
            distance += float((weights[:, None, None] * (a - b) ** 2).sum(0).mean())
            head += 1
    return distance


def random_weights(trunk: str) -> dict[str, Tensor]:
    """A trunk of the right shape, thin, with weights of no meaning."""
    generator = torch.Generator().manual_seed(0)
    kernels = {"alex": (11, 5, 3, 3, 3), "vgg": (3,) * 13}[trunk]
    tensors, channels, taps = {}, 3, 0
    for i, (k, (_, _, _, tap)) in enumerate(zip(kernels, TOPOLOGY[trunk], strict=True)):
        width = 5 + i
        tensors[f"features.{i}.weight"] = torch.randn(width, channels, k, k, generator=generator) / (k * channels**0.5)
        tensors[f"features.{i}.bias"] = 0.1 * torch.randn(width, generator=generator)
        channels = width
        if tap:
            tensors[f"heads.{taps}.weight"] = torch.rand(1, width, 1, 1, generator=generator)
            taps += 1
    return tensors


@pytest.mark.parametrize("trunk", ["alex", "vgg"])
def test_lpips_equals_an_independent_computation(trunk: str, tmp_path: Path) -> None:
    tensors = random_weights(trunk)
    save_file(tensors, tmp_path / "w.safetensors")
    lpips = load_lpips(trunk, tmp_path / "w.safetensors")
    assert lpips is not None
    x, reference = photographs(51)
    found = lpips(x, reference)
    wanted = [
        reference_lpips(trunk, tensors, 2 * a.numpy() - 1, 2 * b.numpy() - 1) for a, b in zip(x, reference, strict=True)
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    raw = lpips(x, reference, Convention(lpips_shift=False))
    np.testing.assert_allclose(raw[0], reference_lpips(trunk, tensors, x[0].numpy(), reference[0].numpy()), rtol=1e-5)
    # the same whatever stands beside it, symmetric, 0 for equal pictures, grey as three channels
    np.testing.assert_allclose(lpips(x[3:4], reference[3:4]), found[3:4], rtol=1e-6)
    np.testing.assert_allclose(lpips(reference, x), found, rtol=1e-6)
    assert (lpips(x, x) == 0).all()
    grey = lpips(x[:, :1], reference[:, :1])
    np.testing.assert_allclose(grey, lpips(x[:, :1].expand(-1, 3, -1, -1), reference[:, :1].expand(-1, 3, -1, -1)))
    cut = slice(5, -5)
    bordered = lpips(x, reference, Convention(border=5))
    np.testing.assert_allclose(bordered, lpips(x[..., cut, cut], reference[..., cut, cut]), rtol=1e-6)


@pytest.mark.parametrize("trunk", ["alex", "vgg"])
def test_lpips_smallest_pictures(trunk: str, tmp_path: Path) -> None:
    save_file(random_weights(trunk), tmp_path / "w.safetensors")
    lpips = load_lpips(trunk, tmp_path / "w.safetensors")
    assert lpips is not None
    least = {"alex": 31, "vgg": 16}[trunk]
    assert torch.isfinite(lpips(torch.rand(1, 3, least, least), torch.rand(1, 3, least, least))).all()
    with pytest.raises(pl.InputError, match=f"{least}x{least} or more"):
        lpips(torch.rand(1, 3, least - 1, least), torch.rand(1, 3, least - 1, least))


def test_lpips_weights_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given, cached, shared; none: None, for the table to say so."""
    monkeypatch.setenv("PNPLADMM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PNPLADMM_SHARED", str(tmp_path / "shared"))
    assert load_lpips("alex") is None
    for place in ("shared", "cache"):
        (tmp_path / place / "lpips").mkdir(parents=True)
        save_file(random_weights("alex"), tmp_path / place / "lpips" / "alex.safetensors")
        assert load_lpips("alex") is not None
        assert load_lpips("vgg") is None


def test_wrong_lpips_files_are_refused(tmp_path: Path) -> None:
    tensors = random_weights("alex")
    save_file(tensors, tmp_path / "alex.safetensors")
    with pytest.raises(pl.InputError, match="not"):
        load_lpips("vgg", tmp_path / "alex.safetensors")
    del tensors["heads.4.weight"]
    save_file(tensors, tmp_path / "headless.safetensors")
    with pytest.raises(pl.InputError, match=r"head of features\.4"):
        load_lpips("alex", tmp_path / "headless.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"no weights")
    with pytest.raises(pl.InputError, match="broken"):
        load_lpips("alex", tmp_path / "broken.safetensors")


def torchvision_layout(trunk: str, tensors: dict[str, Tensor]) -> torch.nn.Sequential:
    """The trunk as torchvision orders its layers, which torchmetrics cuts into slices."""
    layers: list[torch.nn.Module] = []
    for i, (padding, stride, window, _) in enumerate(TOPOLOGY[trunk]):
        if window:
            layers.append(torch.nn.MaxPool2d(window, 2))
        weight = tensors[f"features.{i}.weight"]
        conv = torch.nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[2], stride, padding)
        conv.load_state_dict({"weight": weight.float(), "bias": tensors[f"features.{i}.bias"].float()})
        layers += [conv, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


@pytest.mark.shared
@pytest.mark.skipif(LPIPS_FOLDER is None, reason="no LPIPS weights: ../shared/lpips is not there")
@pytest.mark.parametrize("trunk", ["alex", "vgg"])
def test_lpips_equals_torchmetrics_with_its_own_heads(trunk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchmetrics carries the published heads and code; the trunk is given to it. Ours are half precision."""
    from safetensors.torch import load_file

    theirs = pytest.importorskip("torchmetrics.functional.image.lpips")
    if not hasattr(theirs, "_LPIPS") or not hasattr(theirs, "_get_tv_model_features"):
        pytest.skip("this torchmetrics keeps its LPIPS elsewhere")
    assert LPIPS_FOLDER is not None
    layout = torchvision_layout(trunk, load_file(LPIPS_FOLDER / f"{trunk}.safetensors"))
    monkeypatch.setattr(theirs, "_get_tv_model_features", lambda *_, **__: layout)
    lpips = load_lpips(trunk)
    assert lpips is not None
    x, reference = photographs(64, torch.float32)
    with torch.no_grad():
        wanted = theirs._LPIPS(net=trunk)(2 * x - 1, 2 * reference - 1).flatten()
    np.testing.assert_allclose(lpips(x, reference), wanted, rtol=5e-4)


@pytest.mark.shared
@pytest.mark.skipif(LPIPS_FOLDER is None, reason="no LPIPS weights: ../shared/lpips is not there")
def test_lpips_grows_with_the_noise() -> None:
    for trunk in ("alex", "vgg"):
        lpips = load_lpips(trunk)
        assert lpips is not None
        _, sharp = photographs(64, torch.float32)
        noise = torch.randn(sharp.shape, generator=torch.Generator().manual_seed(0))
        means = [float(lpips(sharp + s * noise, sharp, Convention(clip=True)).mean()) for s in (0.02, 0.05, 0.1, 0.2)]
        assert means == sorted(means)
        assert means[0] < 0.2 < means[-1] < 1.5
