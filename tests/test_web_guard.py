"""Attacks on the server of the page, without a network: who may ask, how much, and what is opened."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
from starlette.testclient import TestClient

from pnpladmm.tensors import InputError
from pnpladmm.web.app import STATIC, make_app
from pnpladmm.web.desk import Desk, download_name
from pnpladmm.web.headers import check_pixels
from pnpladmm.web.limits import Limits
from pnpladmm.web.processes import Ended, Process
from pnpladmm.web.server import make_server
from web_cases import png

KEY, PORT = "a-key-of-this-test", 8765
HOST = f"127.0.0.1:{PORT}"
LIMITS = Limits(upload=1 << 16, file=1 << 15, json=1 << 12, waiting=2, projects=3)
FACTS = {"format": "PNG", "width": 40, "height": 30, "pages": 1, "channels": 1, "colour": "grey", "levels": 1,
         "shades": {"black": 0.0, "white": 1.0}}  # fmt: skip

# It answers every order after a moment, and writes slowly where the real one writes the result.
STAND_IN = """
import json, sys, time, pathlib
for line in sys.stdin:
    order = json.loads(line)
    if order["task"] == "run":
        part = pathlib.Path(order["folder"]) / ".sharp.png.1.part"
        part.write_bytes(b"half")
        pathlib.Path(order["job"]["output"]).write_bytes(b"half")
        time.sleep(60)
    done = FACTS if order["task"] == "open" else {}
    print(json.dumps({"done": done}), flush=True)
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    script = STAND_IN.replace("FACTS", repr(FACTS))
    desk = Desk(tmp_path / "projects", LIMITS, (sys.executable, "-S", "-c", script))
    yield desk
    desk.close()


@pytest.fixture
def client(desk: Desk) -> TestClient:
    app: Any = make_app(desk, KEY, PORT)
    return TestClient(app, base_url=f"http://{HOST}", headers={"Authorization": f"Bearer {KEY}"})


def opened(client: TestClient, name: str = "a.png") -> str:
    answer = client.post("/api/projects", params={"name": name}, content=png(np.zeros((30, 40), np.uint8)))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def test_a_full_disk_is_one_line(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/somewhere/secret")

    monkeypatch.setattr("pathlib.Path.mkdir", full)
    answer = client.post("/api/projects", params={"name": "a.png"}, content=png(np.zeros((30, 40), np.uint8)))
    assert (answer.status_code, answer.json()) == (507, {"error": "the disk did not take it: No space left on device"})


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1:80", "", "127.0.0.1.evil.example:8765"]
)
def test_other_hosts_get_no_answer(client: TestClient, host: str) -> None:
    for path in ("/", "/api/state", "/page/index.html"):
        assert client.get(path, headers={"Host": host}).status_code == 421
    assert client.get("/api/state", headers={"Host": f"localhost:{PORT}"}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", f"https://127.0.0.1:{PORT}"]
)
def test_other_origins_are_refused(client: TestClient, desk: Desk, origin: str) -> None:
    answer = client.post("/api/projects", content=b"x", headers={"Origin": origin})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    assert client.get("/api/state", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert (
        client.get("/api/state", headers={"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}).status_code
        == 200
    )
    assert desk.projects.names() == []


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer wrong", f"Basic {KEY}", KEY])
def test_the_token_is_needed(client: TestClient, given: str | None) -> None:
    del client.headers["Authorization"]
    headers = {} if given is None else {"Authorization": given}
    for method, path in (
        ("GET", "/api/state"),
        ("POST", "/api/projects"),
        ("GET", "/api/openapi.json"),
        ("DELETE", "/api/projects/0123456789ab"),
    ):
        answer = client.request(method, path, headers=headers)
        assert answer.status_code == 401
        assert "key" in answer.json()["error"]
    assert client.get("/", headers=headers).status_code == 200  # the page itself holds nothing


def test_headers_forbid_foreign_content(client: TestClient) -> None:
    for path in ("/", "/api/state", "/api/nothing", "/page/nothing"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert client.get("/api/state").headers["cache-control"] == "no-store"


def test_the_page_needs_nothing_inline_or_foreign() -> None:
    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        assert "http:" not in text.replace("http://www.w3.org/", ""), path.name
        assert "https:" not in text, path.name
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert forbidden not in text, f"{path.name}: {forbidden}"
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert " style=" not in page
    assert " on" not in page.replace(" on ", " ").split("<body")[0]
    assert page.count("<script") == page.count('<script type="module" src="')


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/server.py", "/etc/passwd", "index.html%00.js"]
)
def test_no_path_of_a_browser_is_opened(client: TestClient, name: str) -> None:
    for path in (f"/page/{name}", f"/api/projects/{name}", f"/api/projects/{name}/runs", f"/api/tickets/{name}"):
        answer = client.get(path)
        assert answer.status_code in (404, 405), path
        assert "root:" not in answer.text


@pytest.mark.parametrize(
    "name",
    [
        "../../x.png",
        "/etc/passwd",
        "a\x00b.png",
        "<img src=x onerror=alert(1)>.png",
        "..",
        "a" * 900,
        "C:\\x\\y.tif",
        "",
    ],
)
def test_names_of_uploads_never_become_paths(client: TestClient, desk: Desk, tmp_path: Path, name: str) -> None:
    project = opened(client, name)
    assert {p.name for p in desk.projects.path(project).iterdir()} == {"project.json", "picture.png"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["projects"]
    saved = download_name(name, "-sharp.png")
    assert Path(saved).name == saved
    assert not set(saved) & set('<>:"/\\|?*\x00')


def test_large_uploads_are_refused_before_they_are_read(client: TestClient, desk: Desk) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1 << 15):
            sent += 1 << 16
            yield b"\x89PNG\r\n\x1a\n".ljust(1 << 16, b"\0")

    answer = client.post("/api/projects", content=endless(), headers={"Content-Length": str(2 << 30)})
    assert answer.status_code == 413
    # Without a length they are counted while they come.
    answer = client.post("/api/projects", content=[b"\x89PNG\r\n\x1a\n".ljust(1 << 14, b"\0")] * 9)
    assert answer.status_code == 413
    assert [p.name for p in desk.projects.folder.iterdir()] == []


def test_other_requests_have_a_limit_too(client: TestClient) -> None:
    project = opened(client)
    assert client.put(f"/api/projects/{project}/sketch", content=b"[" * (1 << 13)).status_code == 413
    assert client.post(f"/api/projects/{project}/files?name=a.npy", content=b"0" * (1 << 16)).status_code == 413
    deep = b'{"background":' * 200 + b"1" + b"}" * 200
    assert (
        client.put(
            f"/api/projects/{project}/sketch", content=deep, headers={"Content-Type": "application/json"}
        ).status_code
        == 422
    )


def test_a_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    bomb = tmp_path / "picture.png"
    bomb.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b""))
    with pytest.raises(InputError, match="3600 megapixels"):
        check_pixels(bomb, Limits().pixels)
    import tifffile

    packed = tmp_path / "picture.tif"
    tifffile.imwrite(packed, np.zeros((2000, 3000), np.uint8), compression="deflate")
    assert packed.stat().st_size < 100_000
    with pytest.raises(InputError, match="6 megapixels"):
        check_pixels(packed, 5_000_000)
    check_pixels(packed, 6_000_000)


def test_only_pictures_are_taken(client: TestClient, desk: Desk) -> None:
    for content in (b"", b"short", b"<html><script>alert(1)</script></html>".ljust(64), b"%PDF-1.7".ljust(64)):
        assert client.post("/api/projects", content=content).status_code == 415
    assert desk.projects.names() == []
    project = opened(client)
    for name in ("a.exe", "a.html", "a.svg", "a.py", "a", "a.pkl"):
        assert client.post(f"/api/projects/{project}/files", params={"name": name}, content=b"x").status_code == 415


def test_numbers_are_checked(client: TestClient) -> None:
    project = opened(client)
    motions: list[Any] = [{"motion": {"length": -1}}, {"motion": {"length": 1e9}}, {"gaussian": {"sigma": "NaN"}}]
    others: list[Any] = [{"kernel": "../../x"}, {"defocus": {}}, {}, {"motion": {"length": 3}, "kernel": "0" * 12}]
    for kernel in [*motions, *others, {"run": "rm"}]:
        answer = client.put(f"/api/projects/{project}/sketch", json={"background": kernel})
        assert answer.status_code == 422, kernel
        assert "\n" not in answer.json()["error"]
    assert client.put(f"/api/projects/{project}/settings", json={"strength": 0}).status_code == 422
    assert client.get(f"/api/projects/{project}/tiles/0/-1/0").status_code == 404
    assert client.post(f"/api/projects/{project}/runs", json={}).status_code == 422  # no blur yet


def test_200_requests_at_once(client: TestClient) -> None:
    project = opened(client)
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: client.get(f"/api/projects/{project}").status_code, range(200)))
    assert set(answers) <= {200, 503}
    assert answers.count(200) >= 100
    assert client.get("/api/state").status_code == 200


def test_sockets_that_hang_are_closed(desk: Desk) -> None:
    limits = dataclasses.replace(LIMITS, header_seconds=0.3, chunk_seconds=0.3)
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    desk.limits = limits
    server = make_server(make_app(desk, KEY, port), limits)
    serving = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    serving.start()
    order = f"POST /api/projects HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {KEY}\r\n"
    for sent, answer in (
        (b"", b""),
        (b"GET / HTTP/1.1\r\nHo", b""),
        (order.encode() + b"Content-Length: 5000\r\n\r\n" + b"\x89PNG\r\n\x1a\n".ljust(40), b"HTTP/1.1 408"),
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as hanging:
            hanging.sendall(sent)
            heard = b""
            while part := hanging.recv(1 << 12):  # until the server closes it
                heard += part
        assert heard.startswith(answer)
        assert bool(heard) == bool(answer)
    server.should_exit = True
    serving.join(30)
    assert not serving.is_alive()
    assert [p.name for p in desk.projects.folder.iterdir()] == []


def test_the_queue_and_the_projects_have_a_limit(client: TestClient) -> None:
    project = opened(client)
    order = {"sketch": {"background": {"motion": {"length": 5}}}}
    answers = [client.post(f"/api/projects/{project}/runs", json=order).status_code for _ in range(6)]
    assert answers.count(429) >= 3
    opened(client), opened(client)
    assert client.post("/api/projects", content=png(np.zeros((30, 40), np.uint8))).status_code == 507


def wait_for_part(desk: Desk, project: str) -> None:
    for _ in range(600):
        if (desk.projects.path(project) / "runs" / "1" / ".sharp.png.1.part").exists():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it never began to write")


def test_a_run_that_is_cancelled_while_it_writes_leaves_nothing(client: TestClient, desk: Desk) -> None:
    project = opened(client)
    order = {"sketch": {"background": {"motion": {"length": 5}}}}
    first, second = (client.post(f"/api/projects/{project}/runs", json=order).json()["number"] for _ in range(2))
    assert client.post(f"/api/projects/{project}/runs/{second}/cancel").json()["state"] == "cancelled"
    wait_for_part(desk, project)
    assert client.post(f"/api/projects/{project}/runs/{first}/cancel").json()["state"] == "cancelled"
    assert [p.name for p in desk.runs.folder(project, first).iterdir()] == ["run.json"]
    assert client.post(f"/api/projects/{project}/runs/{first}/download/picture").status_code == 409
    again = client.post(f"/api/projects/{project}/runs/{first}/again").json()
    assert again["sketch"] == client.get(f"/api/projects/{project}/runs/{first}").json()["sketch"]
    assert client.delete(f"/api/projects/{project}").status_code == 200
    assert client.get(f"/api/projects/{project}").status_code == 404


def test_the_queue_survives_a_run_that_breaks(client: TestClient, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    project = opened(client)
    order = {"sketch": {"background": {"motion": {"length": 5}}}}
    errors = iter([OSError(28, "No space left on device"), KeyError("x")])

    def broken(*_: Any) -> None:
        raise next(errors)

    monkeypatch.setattr("pnpladmm.web.runs.job_of", broken)
    for number, words in ((1, "No space left"), (2, "unexpected: KeyError")):
        client.post(f"/api/projects/{project}/runs", json=order)
        for _ in range(500):
            run = client.get(f"/api/projects/{project}/runs/{number}").json()
            if run["state"] not in ("waiting", "running"):
                break
            threading.Event().wait(0.02)
        assert run["state"] == "failed"
        assert words in run["error"]


def test_work_has_a_limit_of_time(desk: Desk, tmp_path: Path) -> None:
    process = Process((sys.executable, "-S", "-c", STAND_IN))
    with pytest.raises(Ended, match="took longer than 1 seconds"):
        process.ask("run", 0.6, folder=str(tmp_path), job={"output": str(tmp_path / "sharp.png")})
    assert not process.alive


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process so")
def test_work_has_a_limit_of_memory() -> None:
    code = """
from pnpladmm.web import worker
worker.SHARE_OF_MEMORY = 0.1
worker._bound_memory()
try:
    bytes(int(0.2 * worker.os.sysconf("SC_PAGE_SIZE") * worker.os.sysconf("SC_PHYS_PAGES")))
except MemoryError:
    print("refused")
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "refused\n"


def test_a_download_is_good_once(client: TestClient, desk: Desk) -> None:
    ticket = desk.ticket("a<b>.txt", b"content")
    del client.headers["Authorization"]
    answer = client.get(ticket["url"])
    assert answer.content == b"content"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert client.get(ticket["url"]).status_code == 404


def test_the_api_is_described(client: TestClient) -> None:
    described = client.get("/api/openapi.json").json()
    assert len(described["paths"]) >= 20
    for path, methods in described["paths"].items():
        for method in methods.values():
            assert method["description"], path
    assert client.get("/docs").status_code == 404  # it would load scripts from the network
    assert json.dumps(described)
