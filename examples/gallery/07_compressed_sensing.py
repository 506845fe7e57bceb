"""
Compressed sensing
==================

A camera with a single detector measures sums of pixels with random signs. A third as many measurements as pixels are
enough for a usable picture.
"""

# %%
# The measurements
# ----------------
# The rows of the operator are orthonormal: its norm is 1, and `A A^T = Id`.

import matplotlib.pyplot as plt
import skimage.data
import torch

import pnpladmm as pl
from pnpladmm.metrics import psnr

scene = torch.from_numpy(skimage.data.camera()[60:316:2, 120:376:2] / 255)[None, None].float()
operator = pl.SubsampledTransform((128, 128), fraction=0.33, transform="hadamard", seed=0)
noise = 1 / 255
measured = operator.forward(scene)
measured = measured + noise * torch.randn(measured.shape, generator=torch.Generator().manual_seed(0))
print(f"{measured.shape[-1]} measurements for {scene[0].numel()} pixels; mismatch of the adjoint:", end=" ")
print(f"{pl.check_adjoint(operator, (1, 1, 128, 128)):.1e}")

# %%
# Two priors
# ----------
# With total variation the certificate is `proved`: the run settles. The network gives the better picture.

problem = pl.Problem(measured, operator, pl.Gaussian(noise))
classical = pl.LADMM.certified(pl.load_denoiser("tv"), problem, sigma_d=0.06)
convex = pl.solve(problem, classical, iterations=150)
print(convex.certificate)
learned = pl.restore(measured, operator, noise=noise, iterations=24)

pictures = {"adjoint": operator.adjoint(measured), "tv": convex.image, "light": learned.image, "truth": scene}
figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), layout="constrained")
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    axis.imshow(picture[0, 0].clamp(0, 1), cmap="gray", vmin=0, vmax=1)
    axis.set_title(f"{title}: {float(psnr(picture, scene)):.1f} dB" if title != "truth" else title)
    axis.axis("off")
plt.show()
