"""COCO folders: pictures and instance masks, in COCO's own JSON. Broken entries are counted, the others are used.

    folder/instances_<split>.json      or folder/annotations/instances_<split>.json
    folder/images/*.jpg                or folder/<split>/*.jpg

In COCO's own download the tuning split is `train2017` and the test split `val2017`.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from pnpladmm.files import optional
from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.scenes import Array, Scene, Unusable

OFFICIAL = {"tune": "train2017", "test": "val2017"}
MAX_PIXELS = 1 << 26
COMPRESSED = re.compile("([P-o]{0,6}[0-O])*")
"""COCO's text form of run lengths: characters from `P` on say that more characters of the same number follow."""


def read_coco(folder: Path, split: str) -> tuple[tuple[Scene, ...], Counter[str], Counter[str]]:
    """The scenes of a split in the order of their ids, and how many pictures and masks were left out, by reason."""
    optional("pycocotools.mask")
    content = _read_json(folder, split)
    skipped: Counter[str] = Counter()
    ignored: Counter[str] = Counter()
    images: dict[int, dict[str, Any]] = {}
    for image in content["images"]:
        if not _is_picture(image):
            skipped["entry without id or file name"] += 1
        elif image["id"] in images:
            skipped["id given twice"] += 1
        else:
            images[image["id"]] = image
    annotations: dict[int, list[dict[str, Any]]] = {number: [] for number in images}
    for annotation in content["annotations"]:
        number = annotation.get("image_id") if isinstance(annotation, dict) else None
        if _is_whole(number) and number in annotations:
            annotations[number].append(annotation)
        else:
            ignored["annotation without picture"] += 1
    pictures = next((p for p in (folder / "images", folder / split, folder / OFFICIAL[split]) if p.is_dir()), folder)
    licences = _licences(content)
    stems = Counter(PurePosixPath(image["file_name"]).stem for image in images.values())
    scenes = []
    for number in sorted(images):
        image = images[number]
        stem = PurePosixPath(image["file_name"]).stem
        name = stem if stems[stem] == 1 else f"{stem}-{number}"
        read = partial(_read, pictures, image, tuple(annotations[number]))
        scenes.append(Scene(f"coco/{number}", name, read, _credit(image, licences)))
    return tuple(scenes), skipped, ignored


def _licences(content: dict[str, Any]) -> dict[int, str]:
    found = content.get("licenses")
    entries = [e for e in found if isinstance(e, dict)] if isinstance(found, list) else []
    return {e["id"]: str(e.get("name", "")) for e in entries if _is_whole(e.get("id"))}


def _credit(image: dict[str, Any], licences: dict[int, str]) -> str:
    """Licence and address of a picture, to be shown with it."""
    licence = image.get("license")
    name = licences.get(licence, "") if isinstance(licence, int) else ""
    origin = image.get("flickr_url") or image.get("coco_url")
    return ", ".join(part for part in (name, origin) if isinstance(part, str) and part)


def _read_json(folder: Path, split: str) -> dict[str, Any]:
    names = (f"instances_{split}.json", f"annotations/instances_{split}.json")
    official = f"annotations/instances_{OFFICIAL[split]}.json"
    path = next((folder / n for n in (*names, official) if (folder / n).is_file()), None)
    if path is None:
        raise InputError(f"{folder}: no {names[0]} in it: give a COCO folder, or embedded")
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: broken JSON ({str(error)[:80]})") from None
    if not isinstance(content, dict) or not all(isinstance(content.get(k), list) for k in ("images", "annotations")):
        raise InputError(f"{path}: has no lists images and annotations: not COCO's instances")
    return content


def _is_picture(image: Any) -> bool:
    return isinstance(image, dict) and _is_whole(image.get("id")) and bool(_file_name(image.get("file_name")))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _file_name(value: Any) -> str | None:
    """The name of a picture's file; None for names that lead out of the folder."""
    if not isinstance(value, str) or not value or "\0" in value:
        return None
    path = PurePosixPath(value)
    return None if path.is_absolute() or ".." in path.parts or not path.name else value


def _read(
    folder: Path, image: dict[str, Any], annotations: tuple[Any, ...], ignored: Counter[str]
) -> tuple[Array, tuple[tuple[str, Array], ...], str]:
    pixels, digest = read_pixels(folder / image["file_name"])
    height, width = pixels.shape[:2]
    if (image.get("height", height), image.get("width", width)) != (height, width):
        raise Unusable("picture of another size than its entry says")
    found = []
    for annotation in annotations:
        try:
            found.append((f"{annotation.get('id')}", _mask(annotation, height, width)))
        except Unusable as reason:
            ignored[str(reason)] += 1
    return pixels, tuple(found), digest


def read_pixels(path: Path) -> tuple[Array, str]:
    """(H, W, 3) uint8 of a picture file (grey becomes three equal channels), and the file's SHA-256."""
    from PIL import Image

    try:
        data = path.read_bytes()
    except (OSError, ValueError):  # ValueError: a name that no file can have
        raise Unusable("picture missing") from None
    try:
        with Image.open(io.BytesIO(data)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise Unusable("picture too large")
            pixels = np.array(picture.convert("RGB"))
    except Unusable:
        raise
    except Exception:  # decoders raise anything
        raise Unusable("picture that cannot be decoded") from None
    return pixels, hashlib.sha256(data).hexdigest()


def _mask(annotation: dict[str, Any], height: int, width: int) -> Array:
    """The mask of an annotation (H, W), or `Unusable` with what is wrong with it."""
    from pycocotools import mask

    if annotation.get("iscrowd"):
        raise Unusable("crowd")
    shape = annotation.get("segmentation")
    if isinstance(shape, dict):
        return _run_lengths(shape, height, width)
    if not isinstance(shape, list):
        raise Unusable("no segmentation")
    if not shape or not all(_is_polygon(polygon, height, width) for polygon in shape):
        raise Unusable("broken polygon")
    decoded: Array = mask.decode(mask.merge(mask.frPyObjects(shape, height, width)))
    return decoded.astype(bool)


def _is_polygon(points: Any, height: int, width: int) -> bool:
    """Three corners or more, near the picture: the decoder walks each outline pixel by pixel and does not check."""
    if not isinstance(points, list) or len(points) < 6 or len(points) % 2:
        return False
    limits = (width, height) * (len(points) // 2)
    return all(isinstance(p, int | float) and -limit <= p <= 2 * limit for p, limit in zip(points, limits, strict=True))


def _run_lengths(shape: dict[str, Any], height: int, width: int) -> Array:
    """The mask of run lengths, a list or COCO's text. The decoder does not see when they fill less than the picture."""
    from pycocotools import mask

    counts, size = shape.get("counts"), [height, width]
    if shape.get("size") != size:
        raise Unusable("broken run lengths")
    if isinstance(counts, list) and all(_is_whole(c) and c >= 0 for c in counts) and sum(counts) == height * width:
        filled: Array = mask.decode(mask.frPyObjects({"size": size, "counts": counts}, height, width))
        return filled.astype(bool)
    if not isinstance(counts, str) or not COMPRESSED.fullmatch(counts):
        raise Unusable("broken run lengths")
    try:
        decoded: Array = mask.decode({"size": size, "counts": counts.encode()})
    except ValueError:  # more than the picture
        raise Unusable("broken run lengths") from None
    if mask.encode(decoded)["counts"].decode() != counts:  # less than the picture
        raise Unusable("broken run lengths")
    return decoded.astype(bool)
