"""The latent picture of a blind estimate: piecewise constant, with few and strong edges.

    min_x ||k * g * x - y||^2 + weight ||grad x||_0,

by half-quadratic splitting (L. Xu, C. Lu, Y. Xu, J. Jia, "Image smoothing via L0 gradient minimization", 2011; L. Xu,
S. Zheng, J. Jia, "Unnatural L0 sparse representation for natural image deblurring", CVPR 2013; J. Pan, Z. Hu, Z. Su,
M.-H. Yang, "Deblurring text images via L0-regularized intensity and gradient prior", CVPR 2014). `g` is the narrow
Gaussian of `Canvas.optics`: edges of a sharp photograph are no ideal steps. Without it the width of real edges ends up
in the kernel.
"""

from __future__ import annotations

from torch import Tensor
from torch.fft import rfft2

from pnpladmm.estimate.blind_canvas import Canvas, derivatives, divergence

STRONGEST = 1e3
"""The last weight of the splitting."""


def sharp_edges(canvas: Canvas, kernel: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    """The derivatives of `g * x` along x and y, with `x` the minimiser.

    u = grad x where |grad x|^2 >= weight / b, else 0
    x = argmin ||k * g * x - y||^2 + b ||grad x - u||^2,      b = 2 weight, 4 weight, ... STRONGEST
    """
    transfer = canvas.transfer(kernel) * canvas.optics
    power, data = transfer.abs() ** 2, transfer.conj() * canvas.spectrum
    x, b = canvas.y, 2 * weight
    while True:
        u, v = derivatives(x)
        flat = u * u + v * v < weight / b
        u, v = u.masked_fill(flat, 0), v.masked_fill(flat, 0)
        if b >= STRONGEST:
            return canvas.back(rfft2(u) * canvas.optics), canvas.back(rfft2(v) * canvas.optics)
        x = canvas.back((data + b * rfft2(divergence(u, v))) / (power + b * canvas.roughness))
        b *= 2
