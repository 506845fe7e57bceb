"""The page: how fast a preview is, and whether panning and zooming a large picture stalls the browser.

    python benchmarks/page.py [--out FILE]

Needs the extras `web` and `test`, and Chromium on the PATH. It uses the test suite's server and person.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from web_cases import Server, png
from web_person import Person, chromium

PREVIEWS = 10
LARGE = (5792, 8688)  # rows and columns: 50.3 megapixels
SPIN = 6.0
"""Seconds of panning and zooming."""

# Gaps between frames while pan and zoom go on, and the tasks that the browser itself calls long (50 ms and more).
WATCH = """() => {
    window.gaps = [];
    window.long = [];
    new PerformanceObserver((list) => window.long.push(...list.getEntries().map((e) => e.duration)))
        .observe({type: 'longtask'});
    let last = performance.now();
    const tick = (now) => { window.gaps.push(now - last); last = now; requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
}"""


def previews(person: Person, folder: Path) -> dict[str, Any]:
    """From a changed setting to the restored 256x256 on the screen, as the page itself measures it."""
    photo = folder / "photo.png"
    photo.write_bytes(png(np.tile(skimage.data.astronaut(), (2, 2, 1))))
    person.open(photo)
    person.click("Camera shake", role="radio")
    person.drag((500, 500), (512, 505))
    person.preview()
    first = float(person.page.get_attribute("#preview-box", "data-seconds") or "nan")
    taken = []
    length = person.page.get_by_role("slider", name="Length", exact=False)
    for number in range(PREVIEWS):
        length.fill(str(480 + 10 * number))
        person.page.wait_for_selector("#preview-box[data-state=working]")
        person.previewed()
        taken.append(float(person.page.get_attribute("#preview-box", "data-seconds") or "nan"))
    return {"first, s": first, "median, s": statistics.median(taken), "longest, s": max(taken)}


def large(person: Person, folder: Path) -> dict[str, Any]:
    """Pan and zoom over 50 megapixels, as a hand does it, in slider mode over picture and tiles that still come."""
    rows, columns = LARGE
    photo = folder / "large.png"
    tile = skimage.data.astronaut()
    photo.write_bytes(png(np.tile(tile, (-(-rows // 512), -(-columns // 512), 1))[:rows, :columns]))
    begun = time.monotonic()
    person.open(photo)
    opened = time.monotonic() - begun
    page = person.page
    page.evaluate(WATCH)
    box = page.locator("#canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    end, step = time.monotonic() + SPIN, 0
    page.mouse.move(x, y)
    while time.monotonic() < end:
        for _ in range(25):  # in to single pixels, along, and out again
            page.mouse.wheel(0, -120)
        page.mouse.down()
        for k in range(40):
            page.mouse.move(x + 300 * np.sin(k / 6 + step), y + 200 * np.cos(k / 5))
        page.mouse.up()
        for _ in range(25):
            page.mouse.wheel(0, 120)
        step += 1
    gaps, long = page.evaluate("[window.gaps, window.long]")
    return {
        "opened, s": round(opened, 1),
        "frames": len(gaps),
        "median frame, ms": round(statistics.median(gaps), 1),
        "longest frame, ms": round(max(gaps), 1),
        "frames over 100 ms": sum(gap > 100 for gap in gaps),
        "longest task, ms": round(max(long, default=0), 1),
        "tasks over 100 ms": sum(task > 100 for task in long),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("page-cpu.json"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        server = Server(folder / "projects")
        found = {}
        for called, measure in (("preview of 256x256", previews), ("50 megapixels", large)):
            person = Person(browser, server.address)
            found[called] = measure(person, folder)
            person.close()
        found["machine"] = {"browser": browser.version, "python": platform.python_version()}
        server.stop()
    asked.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
