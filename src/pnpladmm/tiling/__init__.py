"""Pictures in tiles: the same operators and methods with the memory of one tile.

`plan_for` decides whether and how a picture is divided, `solve_by` restores it so.
"""

from pnpladmm.tiling.geometry import Grid, Tile, plan_tiles
from pnpladmm.tiling.memory import read_size
from pnpladmm.tiling.operator import TiledBlur
from pnpladmm.tiling.plan import Plan, plan_for, solve_by

__all__ = ["Grid", "Plan", "Tile", "TiledBlur", "plan_for", "plan_tiles", "read_size", "solve_by"]
