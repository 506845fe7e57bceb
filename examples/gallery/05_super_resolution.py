"""
Super-resolution
================

A small sensor sees a blurred scene and keeps every second pixel. The operator is a product: `pl.Decimation(2) @
blur`.
"""

# %%
# The observation
# ---------------

import matplotlib.pyplot as plt
import numpy as np
import skimage.data
import torch

import pnpladmm as pl
from pnpladmm.blur import gaussian
from pnpladmm.metrics import psnr

pixels = skimage.data.chelsea()[20:276, 90:346]
scene = torch.from_numpy(pixels / 255).permute(2, 0, 1)[None].float()

blur = pl.SpatiallyVaryingBlur(gaussian(1.2)[None].float(), torch.ones(1, 256, 256), boundary="circular")
operator = pl.Decimation(2) @ blur
noise = 2 / 255
generator = torch.Generator().manual_seed(0)
seen = operator.forward(scene)
seen = seen + noise * torch.randn(seen.shape, generator=generator)
print(operator, "makes", tuple(seen.shape), "of", tuple(scene.shape))

# %%
# The restoration
# ---------------
# `restore` takes any operator. It starts from the observation, enlarged.

result = pl.restore(seen, operator, noise=noise)
enlarged = torch.nn.functional.interpolate(seen, scale_factor=2, mode="bicubic", align_corners=False)
print(f"bicubic {float(psnr(enlarged, scene)):.2f} dB, restored {float(psnr(result.image, scene)):.2f} dB")

# %%
# A part of it, enlarged
# ----------------------

part = np.s_[0, :, 40:140, 60:200]
pictures = {"bicubic": enlarged[part], "restored": result.image[part], "truth": scene[part]}
figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    axis.imshow(picture.permute(1, 2, 0).clamp(0, 1), interpolation="nearest")
    axis.set_title(title)
    axis.axis("off")
plt.show()
