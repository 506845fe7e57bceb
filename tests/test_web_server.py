"""The server as a process of its own: attacks through real sockets, and the end of it in the middle of a run."""

from __future__ import annotations

import http.client
import io
import re
import socket
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the extra web")

from web_cases import Server, children_of, is_running, png, small_photo

MOTION = {"background": {"motion": {"length": 7, "angle": 30}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("projects"))
    yield server
    server.stop()


def memory(server: Server) -> float:
    """The most that the server's process has held, in MB."""
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    assert found
    return int(found[1]) / 1024


def connection(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def head(server: Server, *more: str) -> bytes:
    lines = ["POST /api/projects?name=a.png HTTP/1.1", f"Host: 127.0.0.1:{server.port}"]
    return "\r\n".join([*lines, f"Authorization: Bearer {server.key}", *more, "", ""]).encode()


def answer_to(sent: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    parts = []
    try:
        while part := sent.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:  # it closed while we were still sending
        pass
    return b"".join(parts)


def test_the_server_listens_on_this_machine_alone(server: Server) -> None:
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    addresses = {w[1].split(":")[0] for w in listening if w[3] == "0A" and int(w[1].split(":")[1], 16) == server.port}
    assert addresses == {"0100007F"}  # 127.0.0.1
    assert not re.search(rf":{server.port:04X} .* 0A ", Path("/proc/net/tcp6").read_text())


def test_one_server_for_a_folder(server: Server) -> None:
    """A second one would call the runs of the first interrupted, and remove what they wrote."""
    command = [sys.executable, "-m", "pnpladmm", "serve", "--port", "0", "--no-browser", "--folder", str(server.folder)]
    again = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert again.returncode != 0
    (line,) = again.stderr.strip().splitlines()
    assert "another pnpladmm serve is at it" in line


def test_two_gigabytes_are_refused_unread(server: Server) -> None:
    before = memory(server)
    with connection(server) as sent:
        sent.sendall(head(server, f"Content-Length: {2 << 30}"))
        assert b"413" in answer_to(sent).split(b"\r\n")[0]  # before anything of the body was sent
    # Without a length the bytes are counted: a request of JSON has a small limit.
    piece = b"100000\r\n" + b"[" * (1 << 20) + b"\r\n"
    with connection(server) as sent:
        order = head(server, "Transfer-Encoding: chunked", "Content-Type: application/json")
        sent.sendall(order.replace(b"/api/projects?name=a.png", b"/api/projects/0123456789ab/preview"))
        try:
            for _ in range(2 << 10):
                sent.sendall(piece)
        except (ConnectionResetError, BrokenPipeError):
            pass
        else:
            pytest.fail("2 GB of JSON were read to the end")
    assert memory(server) - before < 60
    assert server.call("GET", "/state")["projects"] == []


def bomb(side: int) -> bytes:
    """A small PNG that says it has side x side pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 16, 6, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1 << 22))) + chunk(b"IEND", b"")


def test_bombs_are_refused(server: Server, tmp_path: Path) -> None:
    before = memory(server)
    for side, words in ((60_000, "3600 megapixels"), (12_200, "limit|too large|GB|GiB|bytes")):
        answer = server.client.post("/api/projects", params={"name": "a.png"}, content=bomb(side))
        assert answer.status_code == 422
        assert re.search(words, answer.json()["error"]), answer.text
    project = server.open(png(np.zeros((30, 40), np.uint8)))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("blur.yaml", b"#" * (100 << 20))
    answer = server.client.post(f"/api/projects/{project}/files", params={"name": "b.zip"}, content=packed.getvalue())
    assert answer.status_code == 413
    assert memory(server) - before < 60
    helper = children_of(server.process.pid)
    assert len(helper) == 1  # the one warm process lives, and has not unpacked anything
    server.call("DELETE", f"/projects/{project}")


def test_sockets_that_hang_and_200_requests_at_once(server: Server) -> None:
    hanging = [connection(server) for _ in range(60)]
    for number, one in enumerate(hanging):  # nothing; half a head; half a body
        one.sendall([b"", b"GET / HTTP/1.1\r\nHo", head(server, "Content-Length: 5000") + b"\x89PNG"][number % 3])

    def ask(number: int) -> int:
        asking = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        asking.request("GET", "/api/state", headers={"Authorization": f"Bearer {server.key}"})
        return asking.getresponse().status

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(ask, range(200)))
    assert set(answers) <= {200, 503}
    assert answers.count(200) >= 150
    assert server.call("GET", "/state")
    for one in hanging:
        one.close()
    for _ in range(100):  # what they began to send goes with them
        if not list((server.folder).glob(".arriving-*")):
            return
        time.sleep(0.1)
    raise AssertionError("half-sent pictures stay")


def test_a_server_that_is_killed_in_the_middle_of_a_run(tmp_path: Path) -> None:
    photo = tmp_path / "shaken.png"
    photo.write_bytes(png(small_photo(160)))
    first = Server(tmp_path / "projects", str(photo))
    (listed,) = first.call("GET", "/state")["projects"]
    project = listed["id"]
    assert first.address.endswith(f"&project={project}")  # the page opens with it
    first.call("PUT", f"/projects/{project}/sketch", json=MOTION)
    order = {"settings": {"quality": "standard", "strength": 1.3}}
    for _ in range(2):
        first.call("POST", f"/projects/{project}/runs", json=order)
    folder = tmp_path / "projects" / project / "runs" / "1"
    first.wait(project, 1, "running")
    while not (folder / "blur.yaml").exists():  # the process of the run has started
        time.sleep(0.02)
    started = children_of(first.process.pid)
    while not (folder / "live.png").exists():  # it computes
        time.sleep(0.01)
    first.kill()
    assert len(started) == 2  # the one for short work, and the run's own
    for _ in range(200):
        if not any(is_running(pid) for pid in started):
            break
        time.sleep(0.05)
    assert not any(is_running(pid) for pid in started)  # its processes end with it
    assert not (folder / "sharp.png").exists()

    second = Server(tmp_path / "projects")
    assert [p["id"] for p in second.call("GET", "/state")["projects"]] == [project]
    runs = second.call("GET", f"/projects/{project}/runs")
    assert [run["state"] for run in runs] == ["interrupted", "interrupted"]
    assert [p.name for p in folder.iterdir()] == ["run.json"]  # nothing half-written
    assert second.call("GET", f"/projects/{project}")["sketch"]["background"]["motion"]["length"] == 7
    number = second.call("POST", f"/projects/{project}/runs/1/again")["number"]
    run = second.wait(project, number, "done", "failed")
    assert run["state"] == "done"
    assert "--strength 1.3" in run["command"]
    assert second.download(f"/projects/{project}/runs/{number}/download/picture").startswith(b"\x89PNG")
    second.stop()
