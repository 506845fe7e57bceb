"""A person at the page of `pnpladmm serve`: Chromium driven by Playwright, for tests and for the guide's pictures."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
"""The system's Chromium; Playwright's own browsers are never downloaded."""
INSPECT = (Path(__file__).parent / "web_inspect.js").read_text(encoding="utf-8").partition("\n\n")[2]
TABLET, DESKTOP = (820, 1180), (1280, 800)
Point = tuple[float, float]


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser."""
    from playwright.sync_api import sync_playwright

    # Without a sandbox where root runs the tests, as on build machines: Chromium refuses to start otherwise.
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


class Person:
    """Opens pictures, draws, presses buttons, and notes what the browser complains about."""

    def __init__(self, browser: Any, address: str, size: tuple[int, int] = DESKTOP, dark: bool = False) -> None:
        scheme = "dark" if dark else "light"
        view = {"width": size[0], "height": size[1]}
        self.context = browser.new_context(viewport=view, color_scheme=scheme, reduced_motion="reduce")
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address.partition("/#")[0])
        self.page = self.context.new_page()
        self.page.set_default_timeout(120_000)
        self.clicks, self.pause = 0, 0.0
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        origin = address.partition("/#")[0]
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.complaints.append(said.text))
        self.page.on("request", lambda r: r.url.startswith((origin, "blob:", "data:")) or self.foreign.append(r.url))
        self.page.goto(address)
        self.ready()

    def ready(self) -> None:
        self.page.wait_for_selector("body[data-ready]")

    def reload(self) -> None:
        self.page.reload()
        self.ready()

    def close(self) -> None:
        self.context.close()

    def click(self, name: str, within: Any = None, role: str = "button", exact: bool = True) -> None:
        """Press what has this name."""
        self._think()
        (within or self.page).get_by_role(role, name=name, exact=exact).first.click()

    def _think(self) -> None:
        """Before a click."""
        self.clicks += 1
        self.page.wait_for_timeout(1000 * self.pause)

    def open(self, *files: Path) -> None:
        """Choose a picture in the dialog for files."""
        with self.page.expect_file_chooser() as chooser:
            self.click("Choose a picture")
        self._think()  # in the dialog
        chooser.value.set_files(files)
        self.page.wait_for_selector("body[data-page=work]")
        self.painted()

    def drop(self, file: Path) -> None:
        """Drop a picture on the page."""
        content = base64.b64encode(file.read_bytes()).decode()
        transfer = self.page.evaluate_handle(
            """([content, name]) => {
                const transfer = new DataTransfer();
                transfer.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], name));
                return transfer;
            }""",
            [content, file.name],
        )
        self.page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})
        self.page.wait_for_selector("body[data-page=work]")
        self.painted()

    def painted(self) -> None:
        """Wait until the canvas shows a picture."""
        self.page.wait_for_selector("#canvas[data-complete=true]")

    def on_screen(self, point: Point) -> Point:
        """Where a pixel of the picture lies in the window."""
        scale, x, y = json.loads(self.page.get_attribute("#canvas", "data-view") or "")
        box = self.page.locator("#canvas").bounding_box()
        return box["x"] + (point[0] + 0.5 - x) * scale, box["y"] + (point[1] + 0.5 - y) * scale

    def drag(self, *points: Point) -> None:
        """Press at the first of some pixels of the picture, and move over the others to the last one."""
        self._think()
        mouse, places = self.page.mouse, [self.on_screen(point) for point in points]
        mouse.move(*places[0])
        mouse.down()
        for place in places[1:]:
            mouse.move(*place, steps=4)
        mouse.up()

    def touch(self, point: Point) -> None:
        """Click a pixel of the picture."""
        self._think()
        self.page.mouse.click(*self.on_screen(point))

    def sketch(self) -> dict[str, Any]:
        """The blur as the server keeps it, once the page has saved it."""
        self.page.wait_for_selector("body[data-saved=true]")
        project = self.page.evaluate("new URLSearchParams(location.hash.slice(1)).get('project')")
        key = self.page.evaluate("sessionStorage.getItem('pnpladmm-key')")
        answer = self.page.request.get(
            f"{self.page.url.partition('/#')[0]}/api/projects/{project}", headers={"Authorization": f"Bearer {key}"}
        )
        return dict(answer.json()["sketch"])

    def preview(self) -> None:
        """Ask for a preview, and wait for it."""
        self.click("Preview")
        self.previewed()

    def previewed(self) -> None:
        self.page.wait_for_selector("#preview-box[data-state=ready]")

    def restore(self) -> None:
        self.click("Restore picture")

    def run(self, number: int, *states: str) -> Any:
        """The card of a run, once it is in one of the states."""
        marks = ", ".join(f"[data-run='{number}'][data-state={state}]" for state in states)
        card = self.page.locator(marks)
        card.wait_for(timeout=120_000)
        return card

    def save(self, name: str, within: Any = None, into: Path | None = None) -> Path:
        """Press a button that downloads a file."""
        with self.page.expect_download() as download:
            self.click(name, within)
        name = download.value.suggested_filename
        target = (into or Path(download.value.path()).parent) / name
        download.value.save_as(target)
        return target

    def pixel(self, point: Point) -> list[int]:
        """The colour that the canvas shows at a pixel of the picture, when all tiles are there and drawn."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.page.wait_for_selector("#canvas[data-complete=true]")
        return list(
            self.page.evaluate(
                """([x, y]) => {
                    const canvas = document.getElementById('canvas');
                    const [scale, left, top] = JSON.parse(canvas.dataset.view), ratio = devicePixelRatio;
                    const at = [(x + 0.5 - left) * scale * ratio, (y + 0.5 - top) * scale * ratio];
                    return [...canvas.getContext('2d').getImageData(...at.map(Math.floor), 1, 1).data];
                }""",
                point,
            )
        )

    def overlapping(self) -> list[str]:
        """What is cut off at the side, or lies over something else that can be pressed."""
        return list(self.page.evaluate(f"({INSPECT}).cutOff()"))

    def unreadable(self) -> list[str]:
        """Text with a contrast below that of WCAG 2.1 AA, and controls without a name."""
        return list(self.page.evaluate(f"[...({INSPECT}).lowContrast(), ...({INSPECT}).nameless()]"))
