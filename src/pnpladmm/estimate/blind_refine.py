"""The last kernel of a blind estimate, refined: faint parts come back, and the picture's spectrum has a say.

Coarse to fine cuts away what is small, so that noise does not grow from scale to scale. With it go the faint parts of a
real kernel. Here edges and kernel take turns again, on the picture's own scale, and every value of the kernel counts:

    min_k  PIXELS / (2 n s^2) sum_d ||M (u_d * k - D_d y)||^2 - log p(|Y|^2 | k) + FEW sum_j sqrt(k_j / max k),
    k >= 0,  sum k = 1.

`u` are the guessed edges, `M` is `canvas.fitted` with `n` pixels, `s` what the kernel so far leaves unexplained; the
second term is that of `blind_spectrum`. Edges alone drift to where they came from, and the spectrum alone follows every
line of the scene.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.blind_canvas import Canvas
from pnpladmm.estimate.blind_edges import sharp_edges
from pnpladmm.estimate.blind_kernel import centred, cleaned
from pnpladmm.estimate.blind_spectrum import Witness

ROUNDS = 5
"""Edges and kernel in turn."""
EDGES = (4e-3, 1e-3)
"""The weight of edges in the first and the last round: more and more edges count."""
PIXELS = 12000
"""Independent values that the guessed edges are worth, against the cells of the spectrum."""
FEW = 1.0
STEPS = 40
"""Of a quasi-Newton method, in each round."""
EMPTY = 1e-3
"""Of the largest value: pixels without light start here, so that they can grow."""
FAINT = 0.01
"""Of the largest value, and of the light: what is below it is noise after all."""


def refined(canvas: Canvas, kernel: Tensor, witness: Witness) -> Tensor:
    """The kernel (k, k) that explains the picture of a canvas best, found from one that is about right."""
    k = kernel.double().cpu()
    for weight in np.geomspace(*EDGES, ROUNDS):
        k = _fitted(canvas, sharp_edges(canvas, k.to(canvas.y), float(weight)), k, witness)
    return centred(cleaned(k.to(kernel), FAINT, FAINT))


def _fitted(canvas: Canvas, edges: tuple[Tensor, Tensor], start: Tensor, witness: Witness) -> Tensor:
    """The minimiser over `k = q^2 / sum q^2`, near `start`."""
    from scipy.optimize import minimize  # slow to import

    spectra = [torch.fft.rfft2(u) for u in edges]
    scene, noise = witness.scene_and_noise(start)

    def unexplained(k: Tensor) -> Tensor:
        transfer = canvas.transfer(k.to(canvas.y))
        left = [canvas.back(u * transfer) - d for u, d in zip(spectra, canvas.slopes, strict=True)]
        return ((canvas.fitted * torch.stack(left)) ** 2).sum().double().cpu()

    worth = PIXELS / 2 / max(float(unexplained(start)), 1e-12)

    def value_and_slope(values: Array) -> tuple[float, Array]:
        q = torch.from_numpy(values).view(start.shape).requires_grad_(True)
        k = q**2 / (q**2).sum()
        few = (k / k.detach().max() + EMPTY).sqrt().sum()
        value = worth * unexplained(k) + witness.misfit(k, scene, noise) + FEW * few
        (slope,) = torch.autograd.grad(value, q)
        return float(value.detach()), slope.ravel().numpy()

    first = (start + EMPTY * start.max()).sqrt().ravel().numpy()
    best: Array = minimize(value_and_slope, first, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
    return torch.from_numpy(best**2 / (best**2).sum()).view(start.shape)
