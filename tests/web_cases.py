"""A server of `pnpladmm serve` in a process of its own, for the tests of the page and its API."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import skimage.data
from PIL import Image


class Server:
    """`pnpladmm serve`, and a client that has its key."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "pnpladmm", "serve", "--port", "0", "--no-browser", "--folder", str(folder)]
        self.process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"(http://127\.0\.0\.1:(\d+))/#key=([^&\s]+)\S*", line)
        assert found, line
        self.url, self.port, self.key, self.address = found[1], int(found[2]), found[3], found[0]
        self.client = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=300)

    def call(self, method: str, path: str, **more: Any) -> Any:
        answer = self.client.request(method, f"/api{path}", **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def open(self, content: bytes, name: str = "photo.png") -> str:
        return str(self.call("POST", "/projects", params={"name": name}, content=content)["id"])

    def wait(self, project: str, number: int, *states: str, seconds: float = 240) -> dict[str, Any]:
        """Wait until a run is in one of the states."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            run: dict[str, Any] = self.call("GET", f"/projects/{project}/runs/{number}")
            if run["state"] in states:
                return run
            time.sleep(0.1)
        raise AssertionError(f"the run is {run['state']}, not {' or '.join(states)}: {run}")

    def download(self, path: str, **more: Any) -> bytes:
        return httpx.get(f"{self.url}{self.call('POST', path, **more)['url']}", timeout=60).content

    def kill(self) -> None:
        """As the system does when it runs out of memory: no time to say goodbye."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.client.close()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.client.close()


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def small_photo(side: int = 96) -> np.ndarray:
    """A crop of the astronaut, blurred along a line and with a little noise."""
    from scipy.ndimage import convolve

    from pnpladmm.blur import motion

    sharp = skimage.data.astronaut()[40 : 40 + 2 * side : 2, 160 : 160 + 2 * side : 2].astype(float)
    blurred = np.stack([convolve(sharp[..., c], motion(7, 30).numpy(), mode="nearest") for c in range(3)], -1)
    return (blurred + np.random.default_rng(0).normal(0, 2, blurred.shape)).clip(0, 255).round().astype(np.uint8)


def children_of(pid: int) -> list[int]:
    """Processes that a process started and that still run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == pid and words[0] != "Z":
            found.append(int(folder.name))
    return found


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def picture_file(path: Path, pixels: np.ndarray) -> Path:
    """8-bit pixels as a 16-bit PNG with a colour profile, under any name."""
    from PIL import ImageCms

    from pnpladmm.pictures import Picture, write_picture
    from pnpladmm.pictures.metadata import Metadata

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    picture = Picture.from_array(pixels.astype(np.uint16) * 257)
    write_picture(path, dataclasses.replace(picture, metadata=Metadata(icc=profile)))
    return path
