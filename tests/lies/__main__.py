"""`PYTHONPATH=tests python -m lies --count 2000`: what was said of each run, and every word that is false."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter

import torch

import pnpladmm as pl
from lies.cases import case
from lies.truth import bad_words, is_hidden, untrue


def judged(seed: int) -> tuple[str, list[str], str]:
    """What was said of the run of a seed, what of it is false, and the run in words."""
    words = f"seed {seed}"
    try:
        one = case(seed)
        words = one.words
        result = pl.solve(one.problem, one.method, one.iterations, one.tolerance, start=one.start, record=one.record)
    except pl.InputError as error:
        return "refused", bad_words(error), f"{words}: {error}"
    except Exception as error:
        return "exception", [f"{type(error).__name__}: {str(error)[:200]}"], words
    hidden = " if the denoiser keeps a promise that it breaks" if is_hidden(one, result) else ""
    return f"{result.status.label}, {result.certificate.level.value}{hidden}", untrue(one, result), words


def main() -> int:
    """Judge many runs."""
    parser = argparse.ArgumentParser(prog="lies", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    said: Counter[str] = Counter()
    false: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.count):
        label, found, words = judged(seed)
        said[label] += 1
        false[label] += bool(found)
        for one in found:
            print(f"{words}: FALSE: {one}", flush=True)
    print("| said | runs | false |\n|---|---|---|")
    for label, count in sorted(said.items()):
        print(f"| {label} | {count} | {false[label]} |")
    print(f"| **all** | {said.total()} | {false.total()} |")
    return int(bool(false.total()))


if __name__ == "__main__":
    sys.exit(main())
