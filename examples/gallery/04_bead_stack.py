"""
A microscope stack and its beads
================================

Beads that are smaller than the resolution show the PSF. Here are three of them at three places, as one usually gets
them: noisy, and with the offset of the camera. The stack has four planes, which are restored one after the other.
"""

# %%
# The stack and the beads
# -----------------------

import matplotlib.pyplot as plt
import numpy as np
import skimage.data

import pnpladmm as pl
from pnpladmm.blur import gaussian

random = np.random.default_rng(0)
beads = np.stack([gaussian(width, size=21).numpy() for width in (1.6, 2.2, 2.8)])
places = np.array([(30, 96), (96, 96), (162, 96)])  # x, y of each bead
beads = random.poisson(2000 * beads / beads.max(axis=(1, 2), keepdims=True) + 100).astype(float)

cells = skimage.data.cell()[200:392, 150:342] / 255
planes = np.stack([np.roll(cells, 6 * depth, 1) for depth in range(4)])
truth = 300 * planes

blur = pl.as_blur(beads, size=(192, 192), positions=places, background="border")
print(blur.source, *blur.notes, sep="\n")
seen = [
    pl.simulate(plane, blur, gain=1.0, background=50.0, boundary="reflect", seed=i) for i, plane in enumerate(truth)
]
counts = np.stack([one.picture.to_array() for one in seen])

# %%
# The restoration
# ---------------
# `axes="BHW"` says that the first axis counts pictures.

result = pl.restore(counts, blur, gain=1.0, background=50.0, axes="BHW")
restored = np.asarray(result)
print(result, restored.shape)

figure, axes = plt.subplots(1, 3, figsize=(13, 4.5), layout="constrained")
panels = {"counts, plane 0": counts[0] - 50, "restored, plane 0": restored[0], "truth": truth[0]}
for axis, (title, picture) in zip(axes, panels.items(), strict=True):
    axis.imshow(picture, cmap="gray", vmin=truth.min(), vmax=truth.max())
    axis.set_title(title)
    axis.axis("off")
plt.show()
