"""
Methods compared
================

All methods minimise with the same operator, data term and denoiser. They differ in how often they call the denoiser,
and in where they end.
"""

# %%
# One problem
# -----------

import matplotlib.pyplot as plt
import skimage.data
import torch

import pnpladmm as pl
from pnpladmm.blur import motion
from pnpladmm.metrics import psnr
from pnpladmm.solvers import make_method

scene = torch.from_numpy(skimage.data.coffee()[60:188, 150:278] / 255).permute(2, 0, 1)[None].float()
blur = pl.SpatiallyVaryingBlur(motion(11, 30)[None].float(), torch.ones(1, 128, 128), boundary="circular")
noise = 10 / 255
seen = blur.forward(scene)
seen = seen + noise * torch.randn(seen.shape, generator=torch.Generator().manual_seed(0))
problem = pl.Problem(seen, blur, pl.Gaussian(noise))
denoiser = pl.load_denoiser("light")

# %%
# Six methods
# -----------
# `make_method` takes the tuned settings for this noise level. `reference` puts the PSNR into the history.

runs = {"fast": 8, "ladmm": 30, "admm": 15, "ista": 50, "fista": 50, "certified": 30}
results = {}
for name, iterations in runs.items():
    method = make_method(name, denoiser, problem, torch.tensor([noise]), calls=8 if name == "fast" else None)
    results[name] = pl.solve(problem, method, iterations=iterations, reference=scene)
    last = results[name]
    print(f"{name:10} {float(last.history.psnr[-1, 0]):.2f} dB, {last.certificate.level.value}, {last.status.label}")

# %%
# PSNR against denoiser calls
# ---------------------------
# The denoiser costs nearly all of the time, so its calls are the fair scale.

figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
for name, result in results.items():
    axis.plot(result.history.denoiser_calls, result.history.psnr[:, 0], label=name)
axis.axhline(float(psnr(seen, scene)), linestyle=":", color="gray", label="blurred")
axis.set_xscale("log")
axis.set_ylim(float(psnr(seen, scene)) - 1, None)
axis.set_xlabel("denoiser calls")
axis.set_ylabel("PSNR in dB")
axis.legend()
plt.show()
