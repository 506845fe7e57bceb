"""
Few photons
===========

A microscope counts photons. The noise of a pixel grows with its count, so bright and dark parts need different trust.
`gain` says what one photon adds to a pixel, and `background` is the level that no light touches.
"""

# %%
# The observation
# ---------------
# At most 80 photons per pixel, and an offset of the camera of 100 counts.

import matplotlib.pyplot as plt
import numpy as np
import skimage.data

import pnpladmm as pl
from pnpladmm.blur import gaussian

cells = 255.0 - skimage.data.immunohistochemistry()[100:228, 150:278, 0]
truth = 80 * np.clip(cells - 60, 0, None) / 195
psf = gaussian(1.8).numpy()
counts = pl.simulate(truth, psf, gain=1.0, background=100.0, boundary="reflect").picture.to_array()
print(f"{counts.dtype} counts from {counts.min():g} to {counts.max():g}")

# %%
# Three ways
# ----------
# The method for Poisson data is Richardson-Lucy; it has no prior, so more iterations bring more noise. `restore` does
# the rest with a denoiser: with the default method the variance of each pixel is estimated from its neighbours, with
# `primal-dual` the likelihood of the counts is used as it is.

ways = {
    "Richardson-Lucy": pl.restore(counts, psf, gain=1.0, background=100.0, method="richardson-lucy", iterations=30),
    "fast, light": pl.restore(counts, psf, gain=1.0, background=100.0),
    "primal-dual, light": pl.restore(counts, psf, gain=1.0, background=100.0, method="primal-dual", iterations=40),
}

# %%
# The error is measured in photons.

pictures = {"counts": counts - 100} | {name: np.asarray(result) for name, result in ways.items()} | {"truth": truth}
figure, axes = plt.subplots(1, 5, figsize=(15, 3.6), layout="constrained")
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    error = np.sqrt(np.mean((picture - truth) ** 2))
    axis.imshow(picture, cmap="magma", vmin=0, vmax=80)
    axis.set_title(title if title == "truth" else f"{title}\nerror {error:.2f} photons")
    axis.axis("off")
plt.show()
