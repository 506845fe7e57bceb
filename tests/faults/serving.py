"""`pnpladmm serve` under a fault: the server, and in a thread of its process a person who restores one picture.

The person opens a picture (or finds it there after a kill), says what the blur is, waits for the run and saves the
result as `result.png`. Then the server is asked to stop. A second session goes on with the project of the first.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pnpladmm.files import replacing
from pnpladmm.web import server

MOTION = {"background": {"motion": {"length": 5, "angle": 30}}}
SETTINGS = {"settings": {"quality": "quick"}}
SECONDS = 100.0
OVER = ("done", "failed", "cancelled", "interrupted")


def prepare(main: Callable[[], None], folder: Path) -> Callable[[], None]:
    """What runs in place of the command line: the same, with a person beside it."""
    failed: list[str] = []

    def run() -> None:
        said: list[str] = []
        serve = server.serve

        def served(picture: Any, port: Any, place: Any, browser: Any, say: Any) -> None:
            serve(picture, port, place, browser, said.append)

        server.serve = served
        threading.Thread(target=_person, args=(said, folder, failed), daemon=True).start()
        try:
            main()
        except (KeyboardInterrupt, SystemExit):
            if not failed and not (folder / "result.png").exists():
                raise
        if failed:
            print(f"pnpladmm: {failed[0]}", file=sys.stderr)
            sys.exit(1)

    return run


def _person(said: list[str], folder: Path, failed: list[str]) -> None:
    try:
        until = time.monotonic() + SECONDS
        while not said and time.monotonic() < until:
            time.sleep(0.02)
        if said:
            _session(said[0], folder)
    except Exception as error:
        words = str(error) or traceback.format_exc()
        failed.append(" ".join(words.split())[:250])
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def _session(line: str, folder: Path) -> None:
    import httpx

    found = re.search(r"(http://127\.0\.0\.1:\d+)/#key=([^&\s]+)", line)
    assert found
    headers = {"Authorization": f"Bearer {found[2]}"}
    with httpx.Client(base_url=found[1], headers=headers, timeout=SECONDS) as client:

        def call(method: str, path: str, **more: Any) -> Any:
            answer = client.request(method, f"/api{path}", **more)
            if answer.status_code != 200:
                raise OSError(f"the server answered {answer.status_code}: {answer.text[:200]}")
            return answer.json()

        projects = call("GET", "/state")["projects"]
        if projects:
            project = projects[0]["id"]
        else:
            content = (folder / "a.png").read_bytes()
            project = call("POST", "/projects", params={"name": "a.png"}, content=content)["id"]
        call("PUT", f"/projects/{project}/sketch", json=MOTION)
        number = call("POST", f"/projects/{project}/runs", json=SETTINGS)["number"]
        until = time.monotonic() + SECONDS
        while (run := call("GET", f"/projects/{project}/runs/{number}"))["state"] not in OVER:
            if time.monotonic() > until:
                raise OSError(f"the run is still {run['state']}")
            time.sleep(0.05)
        if run["state"] != "done":
            raise OSError(f"the run is {run['state']}: {run.get('error', '')}")
        url = call("POST", f"/projects/{project}/runs/{number}/download/picture")["url"]
        with replacing(folder / "result.png") as beside:
            beside.write_bytes(httpx.get(f"{found[1]}{url}", timeout=SECONDS).raise_for_status().content)
