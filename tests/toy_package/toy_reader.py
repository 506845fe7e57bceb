"""A blur reader: text files with the word TOYBLUR and the width of a square kernel."""

from __future__ import annotations

from pathlib import Path

import torch

import pnpladmm as pl

WORD = b"TOYBLUR"


class ToyReader:
    """Reads `TOYBLUR 5`: a kernel of 5x5 equal numbers."""

    def matches(self, path: Path) -> bool:
        """Files that begin with the word."""
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(WORD)) == WORD

    def read(self, path: Path, options: object) -> pl.Blur:
        """The same kernel everywhere."""
        text = path.read_text().split()[1]
        if not text.isdigit() or int(text) < 1:
            raise pl.InputError(f"{path}: width {text!r}: give a whole number of at least 1")
        width = int(text)
        size = options.needed_size(str(path), "a toy blur")
        return pl.Blur(torch.ones(1, width, width) / width**2, torch.ones(1, *size), source="a toy")
