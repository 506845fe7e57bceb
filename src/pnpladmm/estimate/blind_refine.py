"""The last kernel of a blind estimate, refined: faint parts come back, single pixels beside it go.

Coarse to fine cuts away what is small, so that noise does not grow from scale to scale. With it go the faint parts of a
real kernel. Here edges and kernel take turns again, on the picture's own scale, and the kernel is fitted as one from a
sharp reference: every value counts, and neighbours are as alike as is usual for thin lines (`kernel_fit`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pnpladmm.estimate.blind_canvas import Canvas
from pnpladmm.estimate.blind_edges import sharp_edges
from pnpladmm.estimate.blind_kernel import centred, cleaned
from pnpladmm.estimate.kernel_fit import PRIORS, fit_kernel, sums_over

ROUNDS = 6
"""Edges and kernel in turn."""
EDGES = (3e-4, 1e-4)
"""The weight of edges in the first and the last round: more and more edges count."""
PRIOR = PRIORS[1]
"""Between thin lines and spots: the width of the edges that are guessed adds to that of the kernel."""
PIXELS = 10000
"""Pixels that the kernel is fitted to."""
FAINT = 0.01
"""Of the largest value, and of the light: what is below it is noise after all."""
LARGEST = 47
"""Pixels: sides beyond this take too long."""
ROOM = 6
"""Pixels that a larger kernel keeps around its light."""


def refined(canvas: Canvas, kernel: Tensor) -> Tensor:
    """The kernel (k, k) that explains the picture of a canvas best, found from one that is about right."""
    side = kernel.shape[0]
    inner = _side_of_light(kernel) if side > LARGEST else side
    if inner > LARGEST:
        return kernel
    cut = (side - inner) // 2
    k = kernel[cut : side - cut, cut : side - cut].double().cpu().numpy()
    pixels = np.flatnonzero(canvas.fitted.cpu().numpy())
    if len(pixels) > PIXELS:
        pixels = np.sort(np.random.default_rng(0).choice(pixels, PIXELS, replace=False))
    for weight in np.geomspace(*EDGES, ROUNDS):
        latent = sharp_edges(canvas, torch.from_numpy(k).to(kernel), float(weight))
        across, down = (
            sums_over(u.cpu().numpy(), d.cpu().numpy(), pixels, inner)
            for u, d in zip(latent, canvas.slopes, strict=True)
        )
        sums = across.plus(down)
        k = fit_kernel(sums, max(float(np.sqrt(max(sums.residual(k), 0.0))), 1e-6), PRIOR)
    whole = torch.nn.functional.pad(torch.from_numpy(k).to(kernel), (cut,) * 4)
    return centred(cleaned(whole, FAINT, FAINT))


def _side_of_light(kernel: Tensor) -> int:
    """The odd side of the square around the centre that holds all light, and `ROOM`; at most that of the kernel."""
    side = kernel.shape[0]
    distance = (kernel > 0).nonzero().sub(side // 2).abs()
    return min(side, 2 * (int(distance.max()) + ROOM) + 1)
