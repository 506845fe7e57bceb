"""Damage of JPEG data that decoders fill with grey without a word.

JPEG has no checksums. What the decoder itself remarks is told: codes that do not exist, data that end too early, bytes
that are left over. What decodes to other pixels leaves at most a jump (`jpeg_jumps.py`); one block that is wrong cannot
be told from a picture.
"""

from __future__ import annotations

import re

from pnpladmm.pictures.raw import DAMAGE
from pnpladmm.tensors import InputError, one_line

HARMLESS = re.compile(r"extraneous bytes before marker 0xd9")
"""Some cameras fill up the end; damage may look the same."""
END = b"\xff\xd9"


def check_jpeg(data: bytes, name: str) -> tuple[str, ...]:
    """Refuse damaged data, as far as the decoder notices it; notes on what may be damage."""
    import simplejpeg

    try:
        simplejpeg.decode_jpeg(data, strict=True)
        return ()
    except ValueError as error:
        remark = one_line(str(error))[:100]
    try:
        simplejpeg.decode_jpeg(data, strict=False)
    except ValueError:
        return ()  # a kind that this decoder does not take: nothing is known
    if HARMLESS.search(remark):
        return (f"its JPEG data {DAMAGE} ({remark}): look at the picture, or get the file again",)
    raise InputError(f"{name} is a damaged JPEG ({remark}): get the file again")


def whole_jpeg(segment: bytes, tables: bytes | None) -> bytes:
    """A strip or tile of a TIFF file as a JPEG file: with the tables that the page states once for all of them."""
    if not tables or len(tables) < 4:
        return segment
    return tables.removesuffix(END) + segment[2:]
