"""COCO folders: pictures and instance masks, in COCO's own JSON. What is wrong in one is counted, never fatal.

    folder/instances_<split>.json      or folder/annotations/instances_<split>.json
    folder/images/*.jpg                or folder/<split>/*.jpg

In COCO's own download the tuning split is `train2017` and the test split `val2017`.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from pnpladmm.tensors import InputError
from pnpladmm.workshop.experiments.scenes import Array, Scene, Unusable

OFFICIAL = {"tune": "train2017", "test": "val2017"}
MOST_PIXELS = 1 << 26


def read_coco(folder: Path, split: str) -> tuple[tuple[Scene, ...], Counter[str], Counter[str]]:
    """The scenes of a split in the order of their ids; pictures and masks left out already, by reason."""
    content = _json(folder, split)
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
    things: dict[int, list[dict[str, Any]]] = {number: [] for number in images}
    for annotation in content["annotations"]:
        place = annotation.get("image_id") if isinstance(annotation, dict) else None
        if _whole(place) and place in things:
            things[place].append(annotation)
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
        read = partial(_read, pictures, image, tuple(things[number]))
        scenes.append(Scene(f"coco/{number}", name, read, _credit(image, licences)))
    return tuple(scenes), skipped, ignored


def _licences(content: dict[str, Any]) -> dict[int, str]:
    found = content.get("licenses")
    entries = [e for e in found if isinstance(e, dict)] if isinstance(found, list) else []
    return {e["id"]: str(e.get("name", "")) for e in entries if _whole(e.get("id"))}


def _credit(image: dict[str, Any], licences: dict[int, str]) -> str:
    """Licence and address of a picture: what has to stand beside it where it is shown."""
    licence = image.get("license")
    name = licences.get(licence, "") if isinstance(licence, int) else ""
    origin = image.get("flickr_url") or image.get("coco_url")
    return ", ".join(part for part in (name, origin) if isinstance(part, str) and part)


def _json(folder: Path, split: str) -> dict[str, Any]:
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
    return isinstance(image, dict) and _whole(image.get("id")) and bool(_file_name(image.get("file_name")))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _file_name(value: Any) -> str | None:
    """The name of a picture's file; none that leads out of the folder."""
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
            if picture.width * picture.height > MOST_PIXELS:
                raise Unusable("picture too large")
            pixels = np.array(picture.convert("RGB"))
    except Unusable:
        raise
    except Exception:  # decoders raise anything
        raise Unusable("picture that cannot be decoded") from None
    return pixels, hashlib.sha256(data).hexdigest()


def _mask(annotation: dict[str, Any], height: int, width: int) -> Array:
    """The mask of an annotation (H, W), or `Unusable` with what is wrong with it."""
    if annotation.get("iscrowd"):
        raise Unusable("crowd")
    segmentation = annotation.get("segmentation")
    coded = _run_lengths(segmentation, height, width) if isinstance(segmentation, dict) else segmentation
    if isinstance(segmentation, list):
        polygons = [p for p in segmentation if _is_polygon(p, height, width)]
        if not segmentation or len(polygons) < len(segmentation):
            raise Unusable("broken polygon")
        coded = polygons
    elif not isinstance(segmentation, dict):
        raise Unusable("no segmentation")
    return _decode(coded, height, width)


def _decode(coded: Any, height: int, width: int) -> Array:
    try:
        from pycocotools import mask
    except ImportError:
        raise InputError("COCO's masks need pycocotools: pip install 'pnpladmm[experiments]'") from None
    runs = mask.frPyObjects(coded, height, width)
    decoded: Array = mask.decode(mask.merge(runs) if isinstance(runs, list) else runs)
    return decoded.astype(bool)


def _is_polygon(points: Any, height: int, width: int) -> bool:
    """Three corners or more, near the picture: the decoder walks every outline pixel by pixel, and trusts numbers."""
    if not isinstance(points, list) or len(points) < 6 or len(points) % 2:
        return False
    limits = (width, height) * (len(points) // 2)
    return all(isinstance(p, int | float) and -limit <= p <= 2 * limit for p, limit in zip(points, limits, strict=True))


def _run_lengths(segmentation: dict[str, Any], height: int, width: int) -> dict[str, Any]:
    """Run lengths that fill the picture exactly; the decoder would read beyond others."""
    counts, size = segmentation.get("counts"), segmentation.get("size")
    if isinstance(counts, str) and counts.isascii():
        counts = _uncompressed(counts)
    if (
        size != [height, width]
        or not isinstance(counts, list)
        or not all(_whole(c) and c >= 0 for c in counts)
        or sum(counts) != height * width
    ):
        raise Unusable("broken run lengths")
    return {"counts": counts, "size": size}


def _uncompressed(text: str) -> list[int] | None:
    """COCO's text form: 5 bits a character, the sixth says that more follow; from the fourth run on, differences."""
    counts: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64 or shift > 30:
            return None
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            if bits & 16:
                value -= 1 << shift
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value = shift = 0
    return counts if shift == 0 else None
