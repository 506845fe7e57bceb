"""The long run: many damaged files of every format, in processes that may die, with a table of what became of them."""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.checks import GOOD, judged
from fuzz.forks import fork_workers
from fuzz.mutations import mutated
from fuzz.parts import FORMATS, seeds

VERDICTS = ("read", "refused", "crash", "exception", "hang", "memory", "message", "changed")
BATCH = 200
SLOW = ("tiff", "fits", "blur fits", "psfex", "matlab 5", "matlab 7.3", "parts of tiff", "parts of fits")
"""Formats with slow readers; of the others there are three times as many files."""
PATIENCE = 60.0
"""Seconds on the clock for one file, after which its process is ended."""


def child(name: str, numbers: range, seed: int, folder: Path, pipe: int) -> None:
    """Judge files, and write a line on each."""
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    suffix, good = seeds(name, folder)
    path = folder / f"case{suffix}"
    for number in numbers:
        os.write(pipe, f"{number}\n".encode())
        path.write_bytes(content_of(name, good, seed, number))
        verdict, words = judged(name, path)
        os.write(pipe, json.dumps([number, verdict, words.replace(str(folder), "")]).encode() + b"\n")
    os._exit(0)


def content_of(name: str, good: list[bytes], seed: int, number: int) -> bytes:
    """File `number` of a format; the same one whenever it is asked for."""
    return mutated(name, good, np.random.default_rng([seed, list(FORMATS).index(name), number]))


def batch(name: str, numbers: range, seed: int, folder: Path, counts: Counter[str], log: Any) -> None:
    """Judge the files of some numbers; where a process dies the next one goes on after the file it died of."""
    while numbers:
        read, write = os.pipe()
        process = os.fork()
        if not process:
            os.close(read)
            try:
                child(name, numbers, seed, folder, write)
            finally:
                os._exit(3)
        os.close(write)
        at, done, verdict = _listen(read, numbers, process, name, counts, log)
        os.close(read)
        _, status = os.waitpid(process, 0)
        if done:
            return
        words = (
            f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.waitstatus_to_exitcode(status)}"
        )
        _tell(name, at, verdict or "crash", words, counts, log)
        numbers = range(at + 1, numbers.stop)


def _listen(
    pipe: int, numbers: range, process: int, name: str, counts: Counter[str], log: Any
) -> tuple[int, bool, str | None]:
    """The number of the file that a process is at when it ends, whether it did them all, and why it was ended."""
    at, rest = numbers.start, b""
    while True:
        ready, _, _ = select.select([pipe], [], [], PATIENCE)
        if not ready:
            os.kill(process, signal.SIGKILL)
            return at, False, "hang"
        got = os.read(pipe, 1 << 16)
        if not got:
            return at, False, None
        *lines, rest = (rest + got).split(b"\n")
        for line in lines:
            if line.startswith(b"["):
                number, verdict, words = json.loads(line)
                _tell(name, number, verdict, words, counts, log)
                if number == numbers.stop - 1:
                    return number, True, None
            else:
                at = int(line)


def _tell(name: str, number: int, verdict: str, words: str, counts: Counter[str], log: Any) -> None:
    counts[verdict] += 1
    if verdict not in GOOD:
        log.write(json.dumps({"format": name, "number": number, "verdict": verdict, "words": words}) + "\n")
        log.flush()


def share(names: list[str], seed: int, each: int, out: Path, until: float) -> None:
    """The files of one seed, batch by batch; the table is kept after each, and a later call goes on from there."""
    table, numbers = read_share(out, seed)
    began = time.time()
    with (out / f"log-{seed}.jsonl").open("a") as log, tempfile.TemporaryDirectory() as place:
        for start in range(0, 3 * each, BATCH):
            for name in names:
                stop = min(start + BATCH, each if name in SLOW else 3 * each)
                if stop <= numbers[name] or time.monotonic() > until:
                    continue
                folder = Path(place) / name.replace(" ", "-")
                folder.mkdir(exist_ok=True)
                batch(name, range(max(start, numbers[name]), stop), seed, folder, table[name], log)
                numbers[name] = stop
                kept = {"counts": {key: dict(counts) for key, counts in table.items()}, "numbers": dict(numbers)}
                write(out / f"seed-{seed}.json", json.dumps(kept | {"seconds": time.time() - began}))


def read_share(out: Path, seed: int) -> tuple[dict[str, Counter[str]], Counter[str]]:
    """The verdicts on each format, and how many files of it there were."""
    path = out / f"seed-{seed}.json"
    kept = json.loads(path.read_text()) if path.exists() else {"counts": {}, "numbers": {}}
    return {name: Counter(kept["counts"].get(name, {})) for name in FORMATS}, Counter(kept["numbers"])


def write(path: Path, text: str) -> None:
    """Whole, or not at all: the run may be killed."""
    path.with_suffix(".part").write_text(text)
    path.with_suffix(".part").replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="files over all formats and processes")
    parser.add_argument("--processes", type=int, default=1, help="each has a seed of its own")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first process")
    parser.add_argument("--only", help="one format")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no more files after these")
    parser.add_argument("--out", type=Path, default=Path("fuzz-found"), help="folder of tables and logs; goes on there")
    parser.add_argument("--limit", default="67108864", help="PNPLADMM_MAX_BYTES")
    given = parser.parse_args()
    os.environ["PNPLADMM_MAX_BYTES"] = given.limit
    fork_workers()
    given.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + given.seconds
    names = [given.only] if given.only else list(FORMATS)
    each = -(-given.count // given.processes // sum(1 if name in SLOW else 3 for name in names))
    numbers = range(given.seed, given.seed + given.processes)
    running = []
    for seed in numbers[1:]:
        process = os.fork()
        if not process:
            try:
                share(names, seed, each, given.out, until)
                os._exit(0)
            finally:
                os._exit(3)
        running.append(process)
    share(names, numbers[0], each, given.out, until)
    for process in running:
        os.waitpid(process, 0)
    table = {name: sum((read_share(given.out, seed)[0][name] for seed in numbers), Counter()) for name in names}
    write(given.out / "table.md", report(table))
    print(report(table))
    sys.exit(any(counts[v] for counts in table.values() for v in VERDICTS if v not in GOOD))


def report(table: dict[str, Counter[str]]) -> str:
    """The counts as a table in Markdown."""
    rows = [f"| format | files | {' | '.join(VERDICTS)} |", f"|---|{'---|' * (1 + len(VERDICTS))}"]
    total: Counter[str] = sum(table.values(), Counter())
    for name, counts in [*table.items(), ("**all**", total)]:
        rows.append(f"| {name} | {counts.total()} | {' | '.join(str(counts[v]) for v in VERDICTS)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
