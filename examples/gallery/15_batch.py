"""
Many pictures at once
=====================

Pictures of the same size go through the network together. What a picture gets does not depend on its neighbours: each
has its own noise level, settings, status and certificate, and may have a blur of its own.
"""

# %%
# Four pictures, four noise levels, four blurs
# --------------------------------------------

import matplotlib.pyplot as plt
import skimage.data
import torch

import pnpladmm as pl
from pnpladmm.blur import defocus, gaussian, motion
from pnpladmm.metrics import psnr

crops = [
    skimage.data.astronaut()[0:128, 160:288],
    skimage.data.coffee()[60:188, 150:278],
    skimage.data.chelsea()[60:188, 120:248],
    skimage.data.rocket()[200:328, 260:388],
]
scenes = torch.stack([torch.from_numpy(crop / 255).permute(2, 0, 1).float() for crop in crops])
noise = torch.tensor([2.0, 5.0, 10.0, 20.0]) / 255

kernels = [motion(9, 30, size=13), defocus(3, size=13), gaussian(1.5, size=13), motion(7, 100, size=13)]
kernels = torch.stack(kernels).float()[:, None]  # (B, P, k, k): one kernel for each picture
weights = torch.ones(4, 1, 128, 128)  # (B, P, H, W)
blur = pl.SpatiallyVaryingBlur(kernels, weights, boundary="circular")
seen = blur.forward(scenes)
seen = seen + noise.view(-1, 1, 1, 1) * torch.randn(seen.shape, generator=torch.Generator().manual_seed(0))

# %%
# One call
# --------

together = pl.restore(seen, blur, noise=noise)
print(together)

# %%
# The third picture alone gives the same pixels, up to rounding.

alone = pl.SpatiallyVaryingBlur(kernels[2], weights[2], boundary="circular")
third = pl.restore(seen[2:3], alone, noise=float(noise[2]))
print("largest difference:", float((third.image - together.image[2:3]).abs().max()))

figure, axes = plt.subplots(2, 4, figsize=(13, 6.8), layout="constrained")
for row, pictures in enumerate((seen, together.image)):
    for column, picture in enumerate(pictures):
        axes[row, column].imshow(picture.permute(1, 2, 0).clamp(0, 1))
        level = f"noise {255 * float(noise[column]):.0f} of 255, " if row == 0 else ""
        axes[row, column].set_title(f"{level}{float(psnr(picture[None], scenes[column : column + 1])):.1f} dB")
        axes[row, column].axis("off")
plt.show()
