"""Pictures beyond memory and beyond one machine: files read in parts, tiles as tasks, finished tiles kept."""

from pnpladmm.scale.run import Large, restore_large
from pnpladmm.scale.source import has_parts, is_zarr, open_source
from pnpladmm.scale.task import Settings

__all__ = ["Large", "Settings", "has_parts", "is_zarr", "open_source", "restore_large"]
