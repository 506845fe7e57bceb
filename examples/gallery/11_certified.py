"""
A certified run, and how to read its certificate
================================================

The default method is fast, and no theorem says where it ends. Certified LADMM satisfies the conditions of one. Its
certificate names the theorem, and the numbers that it rests on.
"""

# %%
# A problem
# ---------

import matplotlib.pyplot as plt
import skimage.data
import torch

import pnpladmm as pl
from pnpladmm.blur import defocus, motion
from pnpladmm.metrics import psnr

scene = torch.from_numpy(skimage.data.astronaut()[0:128, 160:288] / 255).permute(2, 0, 1)[None].float()
left = torch.zeros(128, 128)
left[:, :64] = 1
kernels = torch.stack([motion(9, 30, size=11), defocus(2.5, size=11)]).float()
blur = pl.SpatiallyVaryingBlur(kernels, torch.stack([left, 1 - left]), boundary="circular")
noise = 10 / 255
seen = blur.forward(scene)
seen = seen + noise * torch.randn(seen.shape, generator=torch.Generator().manual_seed(0))
problem = pl.Problem(seen, blur, pl.Gaussian(noise))

# %%
# The norm of the blur
# --------------------
# The theorem needs an upper bound of `||H||^2`. It is not 1, even for kernels that sum to one.

print(blur.norm_squared())

# %%
# The run
# -------
# `LADMM.certified` chooses `beta` and `L_x` just inside the theorem. Only `sigma_d` is left: more is smoother.

method = pl.LADMM.certified(pl.load_denoiser("tv"), problem, sigma_d=0.035)
result = pl.solve(problem, method, iterations=150, tolerance=1e-5, reference=scene)
print(result.status.label, "-", result.status.advice)
print(result.certificate)

# %%
# The first word is the level: `proved`. `E` is the objective, and the lines below are the conditions, each with both
# sides and the room between them. Outside of the theorem, the certificate says what fails and by how much:

faster = pl.LADMM(pl.load_denoiser("tv"), sigma_d=0.035, beta=method.beta / 4, L_x=method.beta / 8)
print(pl.solve(problem, faster, iterations=5).certificate)

# %%
# What the theorem promises, seen
# -------------------------------
# The augmented Lagrangian falls at every iteration. The history has one row per iteration and one column per picture.

history = result.history
figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
lagrangian = history.lagrangian[1:, 0]
axes[0].semilogy(lagrangian - lagrangian.min() + 1e-6 * abs(lagrangian.min()))
axes[0].set_title("Lagrangian above its last value")
axes[1].semilogy(history.x_change[:, 0], label="x")
axes[1].semilogy(history.z_change[:, 0], label="z")
axes[1].set_title("relative change per iteration")
axes[1].legend()
axes[2].plot(history.psnr[:, 0])
axes[2].axhline(float(psnr(seen, scene)), linestyle=":", color="gray")
axes[2].set_title("PSNR in dB; dotted: blurred")
for axis in axes:
    axis.set_xlabel("iteration")
plt.show()
