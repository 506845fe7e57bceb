"""Mutations: of bytes anywhere, and of what each format is made of, behind checksums and compression."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress

import numpy as np

Rng = np.random.Generator
NUMBERS = (
    0,
    1,
    -1,
    2,
    5,
    127,
    128,
    255,
    256,
    32767,
    65535,
    65536,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**63 - 1,
)
WORDS = (
    *(
        "0",
        "-1",
        "1e308",
        "-1e308",
        "1e-320",
        "nan",
        "inf",
        ".inf",
        "NaN",
        "true",
        "null",
        "~",
        "",
        "2147483648",
        "1e9",
    ),
    *("99999999999999999999", "0.5", "[]", "{}", "[[", "'", '"', "*a", "&a", "!!python/name:os.system", "../x", "\x00"),
    *(
        "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
        "é",
        "9" * 400,
        "x" * 3000,
        "- " * 50,
        "\\ud800",
    ),
)


def mutated(name: str, seeds: list[bytes], rng: Rng) -> bytes:
    """One damaged file of a format."""
    content = seeds[int(rng.integers(len(seeds)))]
    own = next((change for word, change in STRUCTURED.items() if word in name), None)
    for _ in range(int(rng.integers(1, 4))):
        structured = own is not None and rng.random() < 0.6
        content = own(content, rng) if own is not None and structured else of_bytes(content, seeds, rng)
    return content


def of_bytes(content: bytes, seeds: list[bytes], rng: Rng) -> bytes:
    """A change that knows nothing of the format."""
    data = bytearray(content)
    if not data:
        return bytes(rng.integers(0, 256, 20, dtype=np.uint8))
    at = int(rng.integers(len(data)))
    kind = int(rng.integers(8))
    length = int(rng.integers(1, 1 + min(len(data), 64)))
    if kind == 0:
        data[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        data[at] = int(rng.integers(256))
    elif kind == 2:
        number = NUMBERS[int(rng.integers(len(NUMBERS)))]
        width, order = (2, 4, 8)[int(rng.integers(3))], ("little", "big")[int(rng.integers(2))]
        data[at : at + width] = (number % 2 ** (8 * width)).to_bytes(width, order)
    elif kind == 3:
        del data[at : at + length]
    elif kind == 4:
        data[at:at] = data[at : at + length] * int(rng.integers(1, 4))
    elif kind == 5:
        del data[at:]
    elif kind == 6:
        other = seeds[int(rng.integers(len(seeds)))]
        data[at:] = other[int(rng.integers(len(other))) :]
    else:
        data[at : at + length] = rng.integers(0, 256, length, dtype=np.uint8).tobytes()
    return bytes(data)


def of_text(content: bytes, rng: Rng) -> bytes:
    """Another word in place of one of a text."""
    found = list(re.finditer(rb"[^\s,:\[\]{}\"=]+", content))
    if not found:
        return content
    chosen = found[int(rng.integers(len(found)))]
    other = WORDS[int(rng.integers(len(WORDS)))].encode("utf-8", "replace")
    if rng.random() < 0.3:
        other = found[int(rng.integers(len(found)))][0]
    return content[: chosen.start()] + other + content[chosen.end() :]


def of_png(content: bytes, rng: Rng) -> bytes:
    """A chunk changed, dropped or doubled; its checksum is right."""
    chunks, at = [], 8
    while at + 12 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + length]))
        at += 12 + length
    if not chunks:
        return content
    which = int(rng.integers(len(chunks)))
    kind, body = chunks[which]
    if rng.random() < 0.2:
        chunks[which : which + 1] = [] if rng.random() < 0.5 else [chunks[which]] * 2
    elif kind == b"IDAT" and rng.random() < 0.5:
        with suppress(zlib.error):
            chunks[which] = kind, zlib.compress(of_bytes(zlib.decompress(body), [body], rng))
    else:
        chunks[which] = kind, of_bytes(body, [body or b"0"], rng)
    packed = (struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in chunks)
    return content[:8] + b"".join(packed)


def of_fits(content: bytes, rng: Rng) -> bytes:
    """Another value in a card, a card doubled, or another name."""
    ends = [found.start() for found in re.finditer(rb"END {77}", content)]
    if not ends:
        return content
    card = 80 * int(rng.integers(1 + ends[int(rng.integers(len(ends)))] // 80))
    number = str(NUMBERS[int(rng.integers(len(NUMBERS)))])
    word = WORDS[int(rng.integers(len(WORDS)))]
    kind = rng.random()
    if kind < 0.8:
        value = (number if kind < 0.4 else word).encode("ascii", "replace")[:70]
        return content[: card + 10] + value.rjust(20).ljust(70) + content[card + 80 :]
    if kind < 0.9:
        other = 80 * int(rng.integers(1 + len(content) // 80))
        return content[:card] + content[other : other + 80].ljust(80) + content[card + 80 :]
    return content[:card] + rng.integers(32, 127, 8, dtype=np.uint8).tobytes() + content[card + 8 :]


def of_tiff(content: bytes, rng: Rng) -> bytes:
    """Another type, number or value in an entry of a directory."""
    order = "<" if content[:2] == b"II" else ">"
    if len(content) < 16:
        return content
    big = struct.unpack(order + "H", content[2:4])[0] == 43
    (at,) = struct.unpack_from(order + ("Q" if big else "I"), content, 8 if big else 4)
    if at + 2 > len(content):
        return content
    (count,) = struct.unpack_from(order + "H", content, at)
    entry = 20 if big else 12
    place = at + (8 if big else 2) + entry * int(rng.integers(max(1, min(count, 40))))
    if place + entry > len(content):
        return content
    data = bytearray(content)
    number = NUMBERS[int(rng.integers(len(NUMBERS)))] if rng.random() < 0.6 else int(rng.integers(0, 300))
    kind = int(rng.integers(4))
    if kind == 0:
        struct.pack_into(order + "H", data, place, number % 65536)
    elif kind == 1:
        struct.pack_into(order + "H", data, place + 2, int(rng.integers(0, 20)))
    elif kind == 2:
        struct.pack_into(order + "I", data, place + 4, number % 2**32)
    else:
        struct.pack_into(order + "I", data, place + (12 if big else 8), number % 2**32)
    return bytes(data)


def of_zip(content: bytes, rng: Rng) -> bytes:
    """A file of an archive changed and packed again."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        return content
    if not files:
        return content
    name = list(files)[int(rng.integers(len(files)))]
    files[name] = of_npy(files[name], rng) if name.endswith(".npy") else of_bytes(files[name], [files[name]], rng)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for key, body in files.items():
            archive.writestr(key, body)
    return buffer.getvalue()


def of_npy(content: bytes, rng: Rng) -> bytes:
    """Another word in the header."""
    end = content.find(b"\n") + 1
    if not content.startswith(b"\x93NUMPY") or not end or rng.random() < 0.3:
        return of_bytes(content, [content or b"0"], rng)
    head = of_text(content[10:end].rstrip(), rng) + b"\n"
    return content[:8] + struct.pack("<H", len(head) % 65536) + head + content[end:]


def of_safetensors(content: bytes, rng: Rng) -> bytes:
    """Another word in the header."""
    if len(content) < 8:
        return content
    (length,) = struct.unpack("<Q", content[:8])
    head = of_text(content[8 : 8 + min(length, len(content))], rng)
    if rng.random() < 0.3:
        with suppress(ValueError, AttributeError, TypeError):
            table = json.loads(head)
            table.setdefault("__metadata__", {})["iteration"] = WORDS[int(rng.integers(len(WORDS)))]
            head = json.dumps(table).encode()
    return struct.pack("<Q", len(head)) + head + content[8 + min(length, len(content)) :]


def of_matlab(content: bytes, rng: Rng) -> bytes:
    """A changed element, also inside a packed one."""
    data = bytearray(content)
    if len(data) < 200:
        return content
    if struct.unpack_from("<I", data, 128)[0] == 15 and rng.random() < 0.8:
        try:
            inside = of_bytes(zlib.decompress(bytes(data[136:])), [content], rng)
        except zlib.error:
            return content
        packed = zlib.compress(inside)
        return bytes(data[:128]) + struct.pack("<II", 15, len(packed)) + packed
    place = 128 + 4 * int(rng.integers(min(24, (len(data) - 132) // 4)))
    value = NUMBERS[int(rng.integers(len(NUMBERS)))] if rng.random() < 0.5 else int(rng.integers(0, 40))
    struct.pack_into("<I", data, place, value % 2**32)
    return bytes(data)


STRUCTURED: dict[str, Callable[[bytes, Rng], bytes]] = {
    "png": of_png, "tiff": of_tiff, "fits": of_fits, "psfex": of_fits, "npz": of_zip, "npy": of_npy, "pth": of_zip,
    "safetensors": of_safetensors, "state": of_safetensors, "yaml": of_text, "csv": of_text, "settings": of_text,
    "job": of_text, "parts of zarr": of_text, "matlab 5": of_matlab,
}  # fmt: skip
"""By a word in the name of the format."""
