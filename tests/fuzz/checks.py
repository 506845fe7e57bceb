"""What a reader does with a file, judged."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import torch

import pnpladmm as pl
from fuzz.parts import PARTS, opened_as
from fuzz.seeds import BLURS, PICTURES, SIZE
from pnpladmm.blur import read_blur
from pnpladmm.denoisers.loading import load_network
from pnpladmm.gate import max_bytes
from pnpladmm.jobs import read_job
from pnpladmm.scale import open_source
from pnpladmm.solvers.settings import read_settings
from pnpladmm.tensors import LONGEST, InputError

SECONDS = 5.0
ABOVE = 1 << 30
"""Bytes over the limit."""
GOOD = ("read", "refused")


def judged(name: str, path: Path) -> tuple[str, str]:
    """`read`, `refused`, or what is wrong, with a word on it.

    What takes more than five seconds of computing hangs; so does what takes them on the clock, twice: once may be the
    fault of a busy machine.
    """
    for _ in range(2):
        began = time.monotonic()
        verdict, words = _judged(name, path)
        if time.monotonic() - began <= SECONDS or verdict not in GOOD:
            return verdict, words
    return "hang", words


def _judged(name: str, path: Path) -> tuple[str, str]:
    before = _memory("VmRSS")
    _reset_peak()
    began = time.process_time() + sum(os.times()[2:4])
    try:
        verdict, words = "read", ""
        changed = _read(name, path)
        if changed:
            verdict, words = "changed", changed
    except InputError as error:
        verdict, words = "refused", str(error)
        if not words.isprintable() or len(words) > LONGEST or not words.strip():
            verdict = "message"
        if "into memory" in words or "this machine's memory" in words:
            verdict = "memory"
    except BaseException as error:
        verdict, words = "exception", f"{type(error).__name__}: {str(error)[:200]}"
    if time.process_time() + sum(os.times()[2:4]) - began > SECONDS:
        return "hang", words
    if _memory("VmHWM") - before > max_bytes() + ABOVE:
        return "memory", words
    return verdict, words


def _read(name: str, path: Path) -> str:
    """Read a file; what changed when it was written and read again, if anything did."""
    if name in PICTURES:
        return _changed(pl.read_picture(path), path)
    if name in BLURS:
        options = {"kind": "gaussian"} if "map" in name else {}
        blur = read_blur(path, SIZE, **options)
        if not (torch.isfinite(blur.kernels).all() and torch.isfinite(blur.weights).all()):
            return "a blur that is not finite"
        if blur.size != SIZE:
            return f"a blur for {blur.size}"
        copy = path.with_name("copy.npz")
        pl.write_blur(copy, blur)
        again = read_blur(copy, SIZE)
        same = torch.equal(again.kernels, blur.kernels) and torch.equal(again.weights, blur.weights)
        return "" if same and again.order == blur.order else "the blur"
    if name in ("safetensors", "pth"):
        load_network(path)
    elif name == "state":
        pl.load_state(path)
    elif name in PARTS:
        with open_source(opened_as(name, path)) as source:
            rows, columns = ((0, min(n, 64)) for n in source.shape[1:])
            source.read(rows, columns)
    elif name == "settings":
        read_settings(path)
    else:
        read_job(path)
    return ""


def _changed(picture: pl.Picture, path: Path) -> str:
    """What the round trip of a picture changes without a word."""
    if path.suffix == ".jpg":
        return ""
    copy = path.with_name(f"copy{path.suffix}")
    written = pl.write_picture(copy, picture.with_pixels(picture.pixels.clone()))
    try:
        again = pl.read_picture(copy)
    except InputError as error:
        return f"the copy cannot be read: {error}"
    if again.pixels.shape != picture.pixels.shape:
        return f"{tuple(picture.pixels.shape)} became {tuple(again.pixels.shape)}"
    if again.dtype != picture.dtype and not written.notes:
        return f"{picture.dtype} became {again.dtype}"
    seen = torch.ones_like(picture.pixels, dtype=torch.bool) if picture.valid is None else picture.valid
    if not torch.equal(again.pixels[seen] * again.scale, picture.pixels[seen] * picture.scale):
        return "the pixels"
    if (again.alpha is None) != (picture.alpha is None):
        return "alpha"
    return ""


def _memory(what: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return 1024 * int(line.split()[1])
    return 0


def _reset_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
