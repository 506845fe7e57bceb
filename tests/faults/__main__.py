"""`PYTHONPATH=tests python -m faults --count 300 --seed 0`: a table of commands and faults, and every problem."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from faults.commands import COMMANDS
from faults.harness import FAULTS, Harness, random_fault


def main() -> int:
    """Run the faults in turn over commands and kinds."""
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--kinds", default=",".join(FAULTS))
    parser.add_argument("--table", type=Path, help="a file that always has the table so far")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    pairs = [(name, kind) for name in given.commands.split(",") for kind in given.kinds.split(",")]
    done: Counter[tuple[str, str]] = Counter()
    bad: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as root:
        harness = Harness(Path(root))
        for k in range(given.count):
            name, kind = pairs[k % len(pairs)]
            fault = random_fault(kind, harness.undisturbed(name), rng)
            problems = harness.problems(name, fault)
            done[name, kind] += 1
            bad[name, kind] += bool(problems)
            for problem in problems:
                print(f"{name}, {fault}: {problem}", flush=True)
            if given.table:
                given.table.write_text(table(given.commands.split(","), given.kinds.split(","), done, bad))
    print(table(given.commands.split(","), given.kinds.split(","), done, bad))
    return int(bool(sum(bad.values())))


def table(names: list[str], kinds: list[str], done: Counter[tuple[str, str]], bad: Counter[tuple[str, str]]) -> str:
    """How many faults of each kind each command had, and how many with a problem, in Markdown."""
    rows = ["| fault | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for kind in kinds:
        cells = [f"{done[name, kind]}" + (f", {bad[name, kind]} bad" if bad[name, kind] else "") for name in names]
        rows.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join([*rows, f"{sum(done.values())} faults, {sum(bad.values())} with a problem"])


sys.exit(main())
