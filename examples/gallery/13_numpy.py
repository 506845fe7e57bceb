"""
From numpy and back
===================

`pl.restore` takes arrays as they come: `(H, W)`, `(H, W, 3)`, `(C, H, W)`, with a batch axis, of `uint8`, `uint16` or
floats. The result has the same axes, the same type and the same range.
"""

# %%
# Types and shapes
# ----------------

import matplotlib.pyplot as plt
import numpy as np
import skimage.data

import pnpladmm as pl
from pnpladmm.blur import defocus

psf = defocus(2.5).numpy()
sharp = skimage.data.chelsea()[40:168, 100:260]
blurred = pl.simulate(sharp, psf, noise=2 / 255, boundary="reflect").picture.to_array()

given = {
    "uint8, colour": blurred,
    "uint8, grey": blurred[..., 1],
    "uint16": blurred.astype(np.uint16) * 257,
    "float32 in [0, 1]": (blurred / 255).astype(np.float32),
    "channels first": np.moveaxis(blurred, -1, 0),
}
results = {name: np.asarray(pl.restore(array, psf)) for name, array in given.items()}
for name, array in given.items():
    back = results[name]
    print(
        f"{name:18} {array.shape!s:15} {array.dtype!s:8} -> {back.shape!s:15} {back.dtype!s:8} up to {back.max():.3g}"
    )

# %%
# A blur per region
# -----------------
# A label map says which kernel acts where. Weights, positions and polygons work, too.

labels = np.zeros(blurred.shape[:2], int)
labels[:, 80:] = 1
two = pl.as_blur(np.stack([psf, np.pad(np.ones((1, 5)) / 5, ((2, 2), (0, 0)))]), labels=labels, feather=6)
uneven = pl.simulate(sharp, two, noise=2 / 255, boundary="reflect").picture.to_array()
restored = np.asarray(pl.restore(uneven, two))

# %%
# In a notebook
# -------------
# A result shows itself: before and after, how the run ended, its certificate, its curves. `result.like_input()` is the
# restored picture as what was given: an array, a tensor, a DataArray of xarray, a CCDData of astropy.

pl.restore(blurred, psf)

# %%
# A mistake is one line
# ---------------------

try:
    pl.restore(blurred / 255, psf, noise=2.0)
except pl.InputError as error:
    print(error)

figure, axes = plt.subplots(1, 4, figsize=(14, 3.2), layout="constrained")
panels = {
    "blurred": blurred,
    "restored": results["uint8, colour"],
    "two regions": uneven,
    "two regions, restored": restored,
}
for axis, (title, picture) in zip(axes, panels.items(), strict=True):
    axis.imshow(picture)
    axis.set_title(title)
    axis.axis("off")
plt.show()
