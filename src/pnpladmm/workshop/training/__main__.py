"""`python -m pnpladmm.workshop.training`: the settings of a `Recipe` as options, progress as lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pnpladmm.allocator import keep_memory
from pnpladmm.tensors import InputError
from pnpladmm.workshop.training.loop import train
from pnpladmm.workshop.training.recipe import Recipe


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _fractions(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as the options say; returns the exit status."""
    parser = argparse.ArgumentParser(prog="pnpladmm train", description="Train a denoiser on a folder of pictures.")
    add = parser.add_argument
    add("data", type=Path, help="folder of pictures")
    add("out", type=Path, help="weight file to write, ending in .safetensors")
    add("--network", default="light", choices=["light", "drunet", "prox-drunet"])
    add("--channels", type=int, default=3, help="3 for colour, 1 for grey")
    add("--minutes", type=float, help="time budget")
    add("--steps", type=int, help="step budget")
    add("--batch", type=int, default=Recipe.batch)
    add("--crop", type=int, default=Recipe.crop, help="side of a crop in pixels")
    add("--scales", type=_fractions, default=(1.0,), help="sizes each picture is used at, such as 1,0.75,0.5")
    add("--soft-chroma", type=float, default=Recipe.soft_chroma, help="share of crops with colour at half resolution")
    add("--optimizer", default=Recipe.optimizer, choices=["adamw", "muon"], help="muon: rates of about 0.004")
    add("--learning-rate", type=float, default=Recipe.learning_rate)
    add("--warmup-steps", type=int, default=Recipe.warmup_steps)
    add("--weak-noise", type=float, default=Recipe.weak_noise, help="share of crops with sigma below 12/255")
    add("--ema", type=float, default=Recipe.ema, help="decay of the weight average")
    add("--seed", type=int, default=0)
    add("--device", default="cpu", help="cpu or cuda")
    add("--precision", help="default: float32 on CPUs; on GPUs float16, bfloat16 for prox-drunet")
    add("--compile", action=argparse.BooleanOptionalAction, default=None, help="default: on GPUs")
    add("--start", type=Path, help="weight file to train on from")
    add("--fresh", action="store_true", help="do not resume from the checkpoint beside the weights")
    add("--widths", type=_numbers, help="channels at each scale, such as 64,128,256")
    add("--blocks", type=int, help="residual blocks at each scale")
    add("--log-steps", type=int, default=Recipe.log_steps)
    add("--checkpoint-seconds", type=float, default=Recipe.checkpoint_seconds)
    add("--validation", type=Path, help="folder of clean pictures for the PSNR table")
    add("--validation-seconds", type=float, default=Recipe.validation_seconds)
    add("--data-note", default="", help="what the pictures are, for the card")
    gradient = parser.add_argument_group("prox-drunet", "a penalty keeps the eigenvalues of its Hessian below 1")
    add = gradient.add_argument
    add("--penalty", type=float, default=Recipe.penalty, help="its weight")
    add("--margin", type=float, default=Recipe.margin, help="it begins so far below 1")
    add("--growth", type=float, help="bounds them from below, too, where there is little noise: by minus this")
    add("--penalty-crops", type=int, default=Recipe.penalty_crops, help="points in the pool it is taken over")
    add("--penalty-crop", type=int, default=Recipe.penalty_crop, help="their side in pixels")
    add("--penalty-every", type=int, default=Recipe.penalty_every, help="steps from one to the next")
    add("--penalty-from", type=float, default=Recipe.penalty_from, help="share of the budget before the first")
    given = vars(parser.parse_args(arguments))
    on_gpu = given["device"].startswith("cuda")
    half = "bfloat16" if given["network"] == "prox-drunet" else "float16"
    given["precision"] = given["precision"] or (half if on_gpu else "float32")
    compiled = given.pop("compile")
    given["compile_network"] = on_gpu if compiled is None else compiled
    given["resume"] = not given.pop("fresh")
    try:
        train(Recipe(**given), lambda progress: print(progress, flush=True))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    keep_memory()
    sys.exit(main())
