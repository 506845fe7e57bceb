"""
Your own denoiser
=================

Any callable `d(x, sigma)` is a denoiser. If you know something about it, say so: the certificate then gets stronger.
"""

# %%
# A denoiser from scikit-image
# ----------------------------

import matplotlib.pyplot as plt
import numpy as np
import skimage.data
import torch
from skimage.restoration import denoise_nl_means

import pnpladmm as pl
from pnpladmm.blur import motion
from pnpladmm.metrics import psnr


def nonlocal_means(x, sigma):
    """Pictures (B, C, H, W); sigma has one number per picture."""
    levels = torch.as_tensor(sigma).flatten().expand(len(x)).tolist()
    done = [
        denoise_nl_means(
            p.permute(1, 2, 0).numpy(), h=0.7 * s, sigma=s, patch_size=5, patch_distance=5, channel_axis=-1
        )
        for p, s in zip(x, levels, strict=True)
    ]
    return torch.from_numpy(np.stack(done)).permute(0, 3, 1, 2).to(x)


# %%
# A denoiser that promises something
# ----------------------------------
# Shrinking towards grey is the proximal operator of a square, `f(x) = w / 2 ||x - 1/2||^2`. Promise that, and the
# certificate counts on it.


class Pull:
    """`prox_{sigma^2 f}`: the minimiser of `f(x) + ||x - v||^2 / (2 sigma^2)`."""

    promise = pl.Promise.CONVEX
    weight = 5.0

    def __call__(self, v, sigma):
        pull = self.weight * torch.as_tensor(sigma).to(v).reshape(-1, 1, 1, 1) ** 2
        return (v + pull / 2) / (1 + pull)


# %%
# Both in the same problem
# ------------------------

scene = torch.from_numpy(skimage.data.coffee()[60:220, 150:310] / 255).permute(2, 0, 1)[None].float()
blur = pl.SpatiallyVaryingBlur(motion(9, 30)[None].float(), torch.ones(1, 160, 160), boundary="circular")
noise = 5 / 255
seen = blur.forward(scene)
seen = seen + noise * torch.randn(seen.shape, generator=torch.Generator().manual_seed(0))

results = {
    "non-local means": pl.restore(seen, blur, noise=noise, denoiser=nonlocal_means),
    "pull to grey, certified": pl.restore(seen, blur, noise=noise, method="certified", denoiser=Pull()),
    "light": pl.restore(seen, blur, noise=noise),
}
for name, result in results.items():
    print(f"{name}: {result.certificate.level.value}, {result.status.label}")

figure, axes = plt.subplots(1, 4, figsize=(14, 3.9), layout="constrained")
pictures = {"blurred": seen} | {name: result.image for name, result in results.items()}
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    axis.imshow(picture[0].permute(1, 2, 0).clamp(0, 1))
    axis.set_title(f"{title}\n{float(psnr(picture, scene)):.1f} dB")
    axis.axis("off")
plt.show()
