"""The process that reads one dangerous file. It imports no more than the parser, and gives back plain arrays.

Its order is one line of JSON on the standard input; its answer is one line of JSON and the bytes of the arrays.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

LONGEST = 200
"""Characters of an error."""
WORDS = {"mat": "MATLAB 5", "hdf": "MATLAB 7.3", "tiff": "TIFF", "fits": "FITS"}
MOST_CELLS = 100_000
MOST_PAGES = 100_000


class Refused(Exception):
    """The file is refused; the message is for people."""


def main() -> None:
    """Read the order, set the limits, do the task."""
    order = json.loads(sys.stdin.readline())
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints goes nowhere
    _set_limits(order["memory"], order["seconds"], order["clock"])
    parts: list[Any] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = TASKS[order["task"]](order["path"], order["limit"])
        arrays = [_packed(key, value, parts) for key, value in found.items()]
        if sum(part.nbytes for part in parts) > order["limit"]:
            raise Refused(f"holds more than the limit of {order['limit'] / 2**30:.3g} GiB: raise PNPLADMM_MAX_BYTES")
        head: dict[str, Any] = {"arrays": arrays}
    except Refused as error:
        head, parts = {"error": str(error)}, []
    except MemoryError:
        head, parts = {"error": "needs more memory than the limit: raise PNPLADMM_MAX_BYTES if it is meant"}, []
    except BaseException as error:
        lines = str(error).strip().splitlines() or ["no detail"]
        text = "".join(c if c.isprintable() else " " for c in lines[0])[:LONGEST]
        head, parts = {"error": f"cannot be read as {WORDS[order['task']]} ({type(error).__name__}: {text})"}, []
    with os.fdopen(answer, "wb") as out:
        out.write(json.dumps(head).encode() + b"\n")
        for part in parts:
            out.write(memoryview(part).cast("B") if part.nbytes else b"")
    os._exit(0)  # without the destructors of what a damaged file may have left behind


def _set_limits(memory: int, seconds: float, clock: float) -> None:
    """Bytes of addresses, seconds of computing and seconds on the clock. The system keeps to them, no thread has to."""
    try:
        import resource
    except ImportError:  # Windows
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, clock)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))


def _packed(key: str, value: Any, parts: list[Any]) -> tuple[str, Any, list[Any]]:
    """Key, shape of a cell (None for an array), and type and shape of each array; the arrays go to `parts`."""
    import numpy as np

    shape, items = (value.shape, value.ravel()) if value.dtype == object else (None, [value])
    if len(items) > MOST_CELLS:
        raise Refused(f"{key} holds {len(items)} cells: at most {MOST_CELLS}")
    told = []
    for item in items:
        item = np.asarray(item)
        if item.dtype.kind not in "biufcSU":
            item = np.zeros(0, "V1")  # says that there is something else
        item = np.asarray(item, order="C")
        told.append((item.dtype.str, list(item.shape)))
        parts.append(item)
    return key, None if shape is None else list(shape), told


def _mat(path: str, limit: int) -> dict[str, Any]:
    """MATLAB 5, by scipy."""
    import numpy as np
    from scipy.io import loadmat

    found = loadmat(path)
    return {k: v for k, v in found.items() if not k.startswith("__") and isinstance(v, np.ndarray)}


def _hdf(path: str, limit: int) -> dict[str, Any]:
    """MATLAB 7.3: HDF5 with the axes reversed and cells as references."""
    import h5py
    import numpy as np

    left = limit
    arrays: dict[str, Any] = {}

    def values(item: Any) -> Any:
        nonlocal left
        if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "biufcSU":
            return np.zeros(0, "V1")
        left -= int(np.prod(item.shape, dtype=float)) * item.dtype.itemsize
        if left < 0:
            raise Refused(
                f"promises {'x'.join(map(str, item.shape))} values, over the limit of {limit / 2**30:.3g} GiB: "
                "raise PNPLADMM_MAX_BYTES if it is meant"
            )
        if item.external or item.is_virtual:
            raise Refused(f"the values of {item.name.strip('/')} lie in another file: save them in this one")
        return np.array(item).T

    with h5py.File(path, "r") as file:
        for key in file:
            if key.startswith("#"):
                continue
            if isinstance(file.get(key, getlink=True), h5py.ExternalLink):
                raise Refused(f"{key} is a link to another file: save the values themselves")
            item = file[key]
            if not isinstance(item, h5py.Dataset):
                continue
            if item.dtype != object:
                arrays[key] = values(item)
                continue
            if item.size > MOST_CELLS:
                raise Refused(f"{key} holds {item.size} cells: at most {MOST_CELLS}")
            cells = np.empty(item.shape[::-1], dtype=object)
            for index in np.ndindex(item.shape):
                cells[index[::-1]] = values(file[item[index]])
            arrays[key] = cells
    return arrays


def _tiff(path: str, limit: int) -> dict[str, Any]:
    """Decode every picture of a TIFF file, and keep nothing."""
    import math

    import tifffile

    with tifffile.TiffFile(path) as file:
        if len(file.pages) > MOST_PAGES:
            raise Refused(f"holds {len(file.pages)} pages: at most {MOST_PAGES}")
        for series in file.series:
            if math.prod(series.shape) * series.dtype.itemsize > limit:
                raise Refused(f"would decode to {' x '.join(map(str, series.shape))} samples, over the limit")
            series.asarray(maxworkers=1)
            for page in series.pages:
                if page is not None:
                    page.aspage()
    return {}


def _fits(path: str, limit: int) -> dict[str, Any]:
    """Read every header and every picture of a FITS file, and keep nothing."""
    import math

    from astropy.io import fits

    with fits.open(path, memmap=False, lazy_load_hdus=False, ignore_missing_end=True) as hdus:
        for hdu in hdus:
            len(hdu.header.cards)
            if hdu.is_image and hdu.shape:
                if math.prod(hdu.shape) * abs(hdu.header["BITPIX"]) // 8 > limit:
                    raise Refused(f"would unpack to {' x '.join(map(str, hdu.shape))} values, over the limit")
                hdu.data  # noqa: B018  # decoded where it is read
    return {}


TASKS: dict[str, Callable[[str, int], dict[str, Any]]] = {"mat": _mat, "hdf": _hdf, "tiff": _tiff, "fits": _fits}

if __name__ == "__main__":
    main()
