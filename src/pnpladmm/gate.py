"""The gate: what a file may claim, checked in one place before anything is allocated or believed.

Files come from strangers. Their headers are claims: a few bytes can announce a billion pixels, a number of a million
digits, a thousand brackets. So every reader passes what it takes from a file through here:

- `check_size`: values that would need more memory than the limit are refused. The limit is 2 GiB; the environment
  variable `PNPLADMM_MAX_BYTES` sets another one.
- `take`: a field of a header with its type and range, as the reader declares it (`Field`).
- `parse_json`, `yaml_events`, `read_text`: texts of bounded length, depth and numbers.

Every refusal is an `InputError` of one line with the file, the field and the value.

>>> take("psf.fits", {"NXPSFS": 5}, "NXPSFS", Field(int, 1, 99))
5
>>> take("psf.fits", {"NXPSFS": -5}, "NXPSFS", Field(int, 1, 99))
Traceback (most recent call last):
pnpladmm.tensors.InputError: psf.fits: NXPSFS is -5: give a whole number from 1 to 99
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import IO, Any

from pnpladmm.locks import check_regular
from pnpladmm.tensors import InputError, one_line

MAX_BYTES = 2**31
"""Most bytes that one file may unfold to, unless told otherwise."""
LIMIT = "PNPLADMM_MAX_BYTES"
"""The environment variable that sets another limit."""
LONGEST_TEXT = 1000
"""Characters of a text in a header."""
LONGEST_NUMBER = 300
"""Digits of a number in a text."""
DEEPEST = 30
"""Brackets in brackets, of JSON and YAML."""
LONGEST_NPY_HEADER = 10_000
"""Bytes; numpy itself refuses longer ones, but only after it has made room for them."""
REQUIRED: Any = object()
SHOWN = 60
"""Characters of a value in an error."""


def max_bytes() -> int:
    """The limit: most bytes that one file may unfold to."""
    said = os.environ.get(LIMIT)
    if not said:
        return MAX_BYTES
    try:
        limit = int(float(said))
    except (ValueError, OverflowError):
        limit = 0
    if limit < 1:
        raise InputError(f"{LIMIT} is {shown(said)}: give a number of bytes, such as 8e9")
    return limit


def check_size(name: str, shape: Sequence[int], item_bytes: float, limit: int | None = None) -> None:
    """Refuse, from the header alone, what has no values, or more than the limit allows."""
    size = " x ".join(map(str, shape[:8]))
    if any(n <= 0 for n in shape):
        raise InputError(f"{name} has size {size}: at least one pixel is needed")
    most = max_bytes() if limit is None else limit
    needed = math.prod(map(int, shape)) * item_bytes
    if needed > most:
        raise InputError(
            f"{name} would decode to {size} values, {needed / 2**30:.3g} GiB, over the limit of "
            f"{most / 2**30:.3g} GiB: crop or split it, or raise {LIMIT} if it is meant"
        )


@dataclass(frozen=True)
class Field:
    """What a field has to be: its type (int, float, str or bool), its range, and its value where it is missing."""

    kind: type
    least: float = -math.inf
    most: float = math.inf
    default: Any = REQUIRED

    def advice(self) -> str:
        """What to give."""
        if self.kind is str:
            return f"give a text of at most {LONGEST_TEXT} characters"
        if self.kind is bool:
            return "give true or false"
        what = "a whole number" if self.kind is int else "a finite number"
        if math.isfinite(self.least) and math.isfinite(self.most):
            return f"give {what} from {self.least:g} to {self.most:g}"
        if math.isfinite(self.least):
            return f"give {what}, {self.least:g} or more"
        return f"give {what}"


def take(name: str, header: Mapping[str, Any], key: str, field: Field) -> Any:
    """The value of a field, of the type that it declares; refuses what is missing or out of range."""
    value = header.get(key)
    if value is None:
        if field.default is REQUIRED:
            raise InputError(f"{name}: {key} is missing: {field.advice()}")
        return field.default
    good = _fitting(value, field)
    if good is None:
        raise InputError(f"{name}: {key} is {shown(value)}: {field.advice()}")
    return good


def _fitting(value: Any, field: Field) -> Any:
    """The value as the field's type; None where it does not fit."""
    if field.kind is str:
        return value if isinstance(value, str) and len(value) <= LONGEST_TEXT and _is_clean(value) else None
    if field.kind is bool:
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if field.kind is int and not isinstance(value, Integral) and not float(value).is_integer():
        return None
    try:
        number = field.kind(value)
        inside = math.isfinite(number) and field.least <= number <= field.most
    except (OverflowError, ValueError):
        return None
    return number if inside else None


def _is_clean(text: str) -> bool:
    return text.isprintable() and not any("\ud800" <= c <= "\udfff" for c in text)


def shown(value: Any) -> str:
    """A value as errors show it: short, in one line."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return "a number of more than 60 digits"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = one_line(repr(value if not isinstance(value, str | list) else value[:SHOWN]))
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def exists(path: Path) -> bool:
    """Is there such a file? Not where the name is too long, or none that the system could have."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def read_text(path: Path, longest: int, what: str) -> str:
    """A text file of at most `longest` bytes; `what` says what it is meant to be."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            content = file.read(longest + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > longest:
        raise InputError(f"{path}: more than {longest >> 10} KiB is too long for {what}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not {what}: it is no text in UTF-8") from None


def parse_json(name: str, text: str | bytes, what: str) -> dict[str, Any]:
    """A JSON object of bounded depth, with finite numbers of bounded length and clean texts."""
    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        _check_depth(re.sub(r'"(?:[^"\\]|\\.)*"', "", text))
        content = json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
        text.encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: not {what} ({one_line(str(error))[:100]})") from None
    if not isinstance(content, dict):
        raise InputError(f"{name}: not {what}: it holds no table of names and values")
    if not _is_all_clean(content):
        raise InputError(f"{name}: not {what}: it holds texts that are no Unicode")
    return content


def _is_all_clean(content: Any) -> bool:
    """Are all texts encodable? Lone surrogates are not, and make trouble wherever they are printed."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
            return False
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
    return True


def _whole(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(text: str) -> float:
    number = float(text) if len(text) <= LONGEST_NUMBER else math.inf
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def _check_depth(text: str) -> None:
    """Refuse deep brackets: parsers recurse into them, and some need a time that grows with the square of the depth."""
    depth = 0
    for found in re.finditer(r"[\[{]|[\]}]", text):
        depth = depth + 1 if found[0] in "[{" else max(0, depth - 1)
        if depth > DEEPEST:
            raise ValueError(f"{depth} brackets in one another")


def npy_header(name: str, file: IO[bytes]) -> tuple[tuple[int, ...], Any]:
    """Shape and type of an NPY file that is open at its beginning; the file is left behind the header."""
    from numpy.lib import format as form

    version = form.read_magic(file)
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(file.read(width), "little")
    if length > LONGEST_NPY_HEADER:
        raise InputError(f"{name} is a damaged NPY: its header would have {length} bytes")
    file.seek(-width, os.SEEK_CUR)
    reader = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
    shape, _, dtype = reader(file)
    return shape, dtype


def yaml_events(text: str) -> Iterator[Any]:
    """The events of a YAML text, from which nothing is built. ValueError or YAMLError for what is no plain text."""
    import yaml

    _check_depth(text)
    longest = max((len(found[0]) for found in re.finditer(r"[0-9_]+", text)), default=0)
    if longest > LONGEST_NUMBER:
        raise ValueError(f"a number of {longest} digits")
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        # Indentation nests without brackets.
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"{depth} levels in one another")
        yield event
