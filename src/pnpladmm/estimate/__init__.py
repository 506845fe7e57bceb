"""A blur from stars, beads, references, edges, or the picture alone. Each way registers itself."""

from pnpladmm.estimate.blind import Blind
from pnpladmm.estimate.edges import EdgeWidths
from pnpladmm.estimate.entry import estimate_blur
from pnpladmm.estimate.parametric import Parametric
from pnpladmm.estimate.points import Points
from pnpladmm.estimate.scene import Scene
from pnpladmm.estimate.sharp import Sharp
from pnpladmm.estimate.way import WAYS, Tell, Way, way_given

__all__ = [
    "WAYS",
    "Blind",
    "EdgeWidths",
    "Parametric",
    "Points",
    "Scene",
    "Sharp",
    "Tell",
    "Way",
    "estimate_blur",
    "way_given",
]
