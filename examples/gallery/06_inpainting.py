"""
Missing pixels
==============

Four pixels of five are missing. `pl.Mask` is the operator; a denoiser fills in what is lost.
"""

# %%
# The observation
# ---------------

import matplotlib.pyplot as plt
import skimage.data
import torch

import pnpladmm as pl
from pnpladmm.metrics import psnr

pixels = skimage.data.astronaut()[0:224, 110:334]
scene = torch.from_numpy(pixels / 255).permute(2, 0, 1)[None].float()
generator = torch.Generator().manual_seed(0)
kept = torch.rand(1, 1, 224, 224, generator=generator) < 0.2
noise = 3 / 255
seen = kept * (scene + noise * torch.randn(scene.shape, generator=generator))

# %%
# The restoration
# ---------------
# The operator declares that it is a mask, so `restore` uses the settings that were tuned for missing pixels.

result = pl.restore(seen, pl.Mask(kept), noise=noise)
print(result)
print(f"PSNR {float(psnr(result.image, scene)):.2f} dB from {float(kept.float().mean()):.0%} of the pixels")

pictures = {"seen": seen, "restored": result.image, "truth": scene}
figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    axis.imshow(picture[0].permute(1, 2, 0).clamp(0, 1))
    axis.set_title(title)
    axis.axis("off")
plt.show()
