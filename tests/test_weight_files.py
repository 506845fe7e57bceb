"""Weight files: the published names load; damaged, foreign and hostile files are refused, nothing executed."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from pnpladmm.denoisers import shipped
from pnpladmm.denoisers.building import build_network, kind_of, new_network, read_network
from pnpladmm.denoisers.drunet import DRUNet
from pnpladmm.denoisers.light import LightNet
from pnpladmm.denoisers.loading import load_network
from pnpladmm.tensors import InputError

WIDTHS = {"drunet": (4, 6, 8, 10), "light": (8, 12, 16)}


def published_drunet(channels: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the published checkpoints, written out independently of our module."""
    shapes: dict[str, tuple[int, ...]] = {"m_head.weight": (64, channels + 1, 3, 3)}
    widths = (64, 128, 256, 512)

    def block(prefix: str, width: int) -> None:
        for layer in (0, 2):
            shapes[f"{prefix}.res.{layer}.weight"] = (width, width, 3, 3)

    for level in (1, 2, 3):
        inner, outer = widths[level - 1], widths[level]
        for i in range(4):
            block(f"m_down{level}.{i}", inner)
            block(f"m_up{level}.{i + 1}", inner)
        shapes[f"m_down{level}.4.weight"] = (outer, inner, 2, 2)
        shapes[f"m_up{level}.0.weight"] = (outer, inner, 2, 2)
    for i in range(4):
        block(f"m_body.{i}", 512)
    return shapes | {"m_tail.weight": (channels, 64, 3, 3)}


@pytest.mark.parametrize("channels", [1, 3])
def test_the_published_names_and_shapes_are_ours(channels: int) -> None:
    ours = {key: tuple(value.shape) for key, value in DRUNet(channels).state_dict().items()}
    assert ours == published_drunet(channels)


@pytest.fixture
def state() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return dict(new_network("drunet", 3, WIDTHS["drunet"], 2).state_dict())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["drunet", "light"])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
def test_architecture_and_channels_are_read_off_the_file(tmp_path: Path, name: str, channels: int, suffix: str) -> None:
    network = new_network(name, channels, WIDTHS[name], 2)
    half = {key: value.half() for key, value in network.state_dict().items()}
    path = tmp_path / f"mine{suffix}"
    if suffix == ".safetensors":
        save_file(half, path)
    else:
        torch.save({f"module.{key}": value for key, value in half.items()}, path)
    loaded = read_network(path)
    assert type(loaded) is type(network)
    assert loaded.channels == channels
    for key, value in loaded.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, half[key].float())
    denoiser = load_network(path)
    assert denoiser.channels == (channels,)
    assert denoiser(torch.rand(1, channels, 9, 9), 0.1).shape == (1, channels, 9, 9)


@pytest.mark.parametrize("wrapper", ["state_dict", "params", "params_ema"])
def test_wrapped_checkpoints_are_unwrapped(tmp_path: Path, state: dict[str, Tensor], wrapper: str) -> None:
    torch.save({wrapper: state, "epoch": 3}, tmp_path / "w.pth")
    assert isinstance(read_network(tmp_path / "w.pth"), DRUNet)


def refuse(path: Path, match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        load_network(path)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("kept", [0, 7, 200, 0.5, 0.99])
def test_truncated_files_are_refused(tmp_path: Path, state: dict[str, Tensor], suffix: str, kept: float) -> None:
    path = tmp_path / f"cut{suffix}"
    if suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    refuse(path, "truncated")


def test_wrong_shapes_names_values_and_types_are_refused(tmp_path: Path, state: dict[str, Tensor]) -> None:
    path = tmp_path / "w.safetensors"

    def with_change(**change: Tensor | None) -> None:
        changed = {**state, **{key.replace("__", "."): value for key, value in change.items()}}
        save_file({key: value for key, value in changed.items() if value is not None}, path)

    with_change(m_body__1__res__2__weight=torch.zeros(10, 10, 5, 5))
    refuse(path, r"m_body.1.res.2.weight has shape \(10, 10, 5, 5\), expected \(10, 10, 3, 3\)")
    with_change(m_up2__1__res__0__weight=None)
    refuse(path, "m_up2.1.res.0.weight is missing")
    with_change(m_tail__weight=None)
    refuse(path, "m_tail.weight is missing")
    with_change(m_head__weight=torch.zeros(4))
    refuse(path, "m_head.weight is missing or no convolution")
    with_change(m_head__bias=torch.zeros(4))
    refuse(path, "m_head.bias is not a parameter")
    with_change(m_tail__weight=state["m_tail.weight"] * torch.nan)
    refuse(path, "NaN or infinite")
    with_change(m_tail__weight=torch.zeros(3, 4, 3, 3, dtype=torch.int32))
    refuse(path, "torch.int32, not weights")
    save_file({"classifier.weight": torch.zeros(2, 2)}, path)
    refuse(path, "neither a DRUNet")


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("way", ["plain pickle", "torch.save", "inside a state", "legacy", "renamed"])
def test_a_pickle_with_code_is_refused_and_nothing_runs(tmp_path: Path, state: dict[str, Tensor], way: str) -> None:
    executed = tmp_path / "executed"
    bomb = Bomb(executed)
    path = tmp_path / "hostile.pth"
    if way == "plain pickle":
        path.write_bytes(pickle.dumps(bomb, protocol=2))
    elif way == "torch.save":
        torch.save(bomb, path)
    elif way == "inside a state":
        torch.save({**state, "extra": bomb}, path)
    elif way == "legacy":
        torch.save({**state, "extra": bomb}, path, _use_new_zipfile_serialization=False)
    else:
        path = tmp_path / "hostile.safetensors"
        path.write_bytes(pickle.dumps(bomb, protocol=2))
    refuse(path, "refused" if path.suffix == ".pth" else "not a safetensors file")
    assert not executed.exists()
    if way == "plain pickle":  # the bomb is live: it is the loader that keeps it from going off
        pickle.loads(path.read_bytes())
        assert executed.exists()


def test_other_contents_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save([torch.zeros(2)], path)
    refuse(path, "named tensors")
    torch.save({"m_head.weight": 3}, path)
    refuse(path, "named tensors")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")
    refuse(path, "refused")
    path.write_text("<html>404: Not Found</html>")
    refuse(path, "refused")


def test_missing_and_unknown_names_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(tmp_path / "absent.pth", "no such file")
    (tmp_path / "folder.pt").mkdir()
    refuse(tmp_path / "folder.pt", "no such file")
    with pytest.raises(InputError, match="no such network: give one of drunet, drunet-exact, light, "):
        load_network("dncnn")
    monkeypatch.setattr(shipped, "WEIGHTS_FOLDER", tmp_path)
    monkeypatch.setattr(shipped, "LARGE_WEIGHTS", "no_such_package")
    with pytest.raises(InputError, match="pnpladmm train FOLDER FILE --network drunet"):
        load_network("drunet")


def test_a_hostile_shape_costs_no_memory() -> None:
    shapes = {key: torch.empty(1, device="meta").expand(10**6, 10**6, 3, 3) for key in ("m_head.weight",)}
    with pytest.raises(InputError, match="missing"):
        build_network(shapes)


@pytest.mark.parametrize(("name", "own", "largest"), [("light", (1, 3), 12_000_000), ("drunet", (3,), 66_000_000)])
def test_the_shipped_weights_serve_colour_and_grey(name: str, own: tuple[int, ...], largest: int) -> None:
    denoiser = load_network(name)
    assert denoiser.channels == own
    torch.manual_seed(0)
    ramp = torch.linspace(0.2, 0.8, 64)
    clean = (ramp[None, :] * ramp[:, None])[None, None]
    for channels in (1, 3):
        x = clean.expand(1, channels, -1, -1)
        noisy = x + 25 / 255 * torch.randn_like(x)
        before, after = (float((y - x).square().mean()) for y in (noisy, denoiser(noisy, 25 / 255)))
        assert after < before / 20
    for channels in own:
        path = shipped.weight_files(name)[channels]
        assert path.stat().st_size <= largest
        assert path.with_suffix(".json").is_file()
        assert isinstance(read_network(path), {"light": LightNet, "drunet": DRUNet}[name])


def test_a_name_that_shares_an_architecture_is_no_network_to_train(monkeypatch: pytest.MonkeyPatch) -> None:
    other = shipped.ShippedNetwork("light-sharp", LightNet, {3: "light_sharp_color.safetensors"})
    monkeypatch.setitem(shipped.SHIPPED, "light-sharp", other)
    with pytest.raises(InputError, match="network = light-sharp: weights for the network light, no network of its own"):
        new_network("light-sharp")
    network = build_network(new_network("light", 3, (8, 8, 8), 1).state_dict())
    assert kind_of(type(network)) == "light"
