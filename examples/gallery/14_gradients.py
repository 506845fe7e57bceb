"""
From torch, with gradients
==========================

`pl.solve_with_gradients` returns the restored picture as a function of the observation, the noise level and the blur.
Here the width of a Gaussian blur is learned from one pair of pictures: the kernel whose restoration is nearest to the
sharp one.
"""

# %%
# A pair for calibration
# ----------------------

import matplotlib.pyplot as plt
import skimage.data
import torch

import pnpladmm as pl
from pnpladmm.blur import gaussian

scene = torch.from_numpy(skimage.data.camera()[90:186, 190:286] / 255)[None, None]
true_width, noise = 1.7, 2 / 255


def camera(kernel):
    return pl.SpatiallyVaryingBlur(kernel[None], torch.ones(1, 96, 96, dtype=torch.float64), boundary="circular")


clean = camera(gaussian(true_width, size=13)).forward(scene)
seen = clean + noise * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

# %%
# A kernel as a function of its width
# -----------------------------------

axis = torch.arange(-6, 7, dtype=torch.float64)


def kernel_of(width):
    profile = torch.exp(-(axis**2) / (2 * width**2))
    return torch.outer(profile, profile) / profile.sum() ** 2


# %%
# Descent on the width
# --------------------
# The loss goes through the whole restoration. Its gradient comes from the implicit function theorem. It costs about
# one more restoration, and no memory for the steps.

width = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.Adam([width], lr=0.08)
tikhonov = pl.load_denoiser("tikhonov")
steps = []
for _ in range(30):
    problem = pl.Problem(seen, camera(kernel_of(width)), pl.Gaussian(noise))
    restored = pl.solve_with_gradients(problem, pl.Annealed(tikhonov, sigma_d=0.03, calls=3, cg_iterations=30))
    loss = (restored - scene).square().mean()
    optimizer.zero_grad()
    loss.backward()
    steps.append((width.item(), loss.sqrt().item()))
    optimizer.step()
print(f"width found: {width.item():.2f}, true: {true_width}")

# %%
# The way there
# -------------

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
axes[0].plot([w for w, _ in steps])
axes[0].axhline(true_width, linestyle=":", color="gray")
axes[0].set_title("width in pixels; dotted: true")
axes[1].plot([255 * error for _, error in steps])
axes[1].set_title("error of the restored picture, of 255")
for one in axes:
    one.set_xlabel("step")
plt.show()
