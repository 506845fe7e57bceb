"""
Your own operator in 15 lines
=============================

A camera with a rolling shutter, shaken sideways, sees each row shifted by another amount. That is a linear operator:
give the map, its adjoint and the shapes, and every method works with it.
"""

# %%
# The operator
# ------------

import matplotlib.pyplot as plt
import numpy as np
import skimage.data
import torch

import pnpladmm as pl
from pnpladmm.blur import gaussian
from pnpladmm.metrics import psnr


class RollingShutter(pl.LinearOperator):
    """Shift row i by `shifts[i]` pixels, periodically."""

    def __init__(self, shifts):
        self.shifts = shifts

    def _shifted(self, picture, sign):
        rows = picture.unbind(-2)
        return torch.stack([row.roll(sign * int(s), -1) for row, s in zip(rows, self.shifts, strict=True)], -2)

    def forward(self, x):
        return self._shifted(x, 1)

    def adjoint(self, y):
        return self._shifted(y, -1)

    def output_shape(self, shape):
        return shape

    def input_shape(self, shape):
        return shape

    def absolute(self):
        return self  # all entries are non-negative: the norm then has a proven upper bound


# %%
# Test the adjoint first: a wrong one makes every method fail slowly.

rows = np.arange(192)
shutter = RollingShutter((6 * np.sin(rows / 18)).round())
print("mismatch of the adjoint:", pl.check_adjoint(shutter, (1, 1, 192, 192)))

# %%
# A product of operators
# ----------------------
# The lens blurs, then the shutter shifts.

scene = torch.from_numpy(skimage.data.camera()[70:262, 130:322] / 255)[None, None].float()
lens = pl.SpatiallyVaryingBlur(gaussian(1.5)[None].float(), torch.ones(1, 192, 192), boundary="circular")
camera = shutter @ lens
noise = 3 / 255
seen = camera.forward(scene)
seen = seen + noise * torch.randn(seen.shape, generator=torch.Generator().manual_seed(0))

result = pl.restore(seen, camera, noise=noise)
print(result)

pictures = {"seen": seen, "restored": result.image, "truth": scene}
figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    axis.imshow(picture[0, 0].clamp(0, 1), cmap="gray", vmin=0, vmax=1)
    axis.set_title(title if title == "truth" else f"{title}: {float(psnr(picture, scene)):.1f} dB")
    axis.axis("off")
plt.show()
