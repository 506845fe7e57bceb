"""
A star field with a PSF that changes
====================================

The optics of a telescope are sharp in the middle and have coma at the rim. The PSF is known at some places, for
example from bright stars. `pl.as_blur` interpolates between them.
"""

# %%
# PSFs at 25 places
# -----------------

import matplotlib.pyplot as plt
import numpy as np

import pnpladmm as pl

SIZE, K = 256, 25
y, x = np.mgrid[:K, :K] - K // 2


def psf_at(column, row):
    """A Moffat profile, drawn out away from the centre of the field."""
    u, v = (column - SIZE / 2) / (SIZE / 2), (row - SIZE / 2) / (SIZE / 2)
    far = np.hypot(u, v)
    along = (x * u + y * v) / max(far, 1e-9) if far else x * 0.0
    stretched = x**2 + y**2 + np.where(along > 0, -0.55, 0.2) * min(far, 1.2) * along**2
    profile = (1 + stretched / 2.2**2) ** -2.5
    return profile / profile.sum()


places = np.array([(column, row) for row in np.linspace(8, 248, 5) for column in np.linspace(8, 248, 5)])
psfs = np.stack([psf_at(*place) for place in places])
blur = pl.as_blur(psfs, size=(SIZE, SIZE), positions=places)
print(blur.source, *blur.notes, sep="\n")

# %%
# The frame
# ---------
# 60 stars on a sky of 200 counts, with photon noise: `gain` is what one photon adds, `background` the level of the
# sky.

random = np.random.default_rng(1)
sky = np.zeros((SIZE, SIZE))
for flux in 10 ** random.uniform(3.2, 5.2, 60):
    sky[tuple(random.integers(16, SIZE - 16, 2))] += flux
frame = pl.simulate(sky, blur, gain=1.0, background=200.0, boundary="zero").picture.to_array()

result = pl.restore(frame, blur, gain=1.0, background=200.0, method="richardson-lucy", iterations=60)
restored = np.asarray(result)

# %%
# Before and after
# ----------------
# The stretch shows the sky: the scale is logarithmic above a few counts.


def stretched(picture):
    return np.arcsinh(np.clip(picture, 0, None) / 20)


figure, axes = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained")
panels = {"the frame, less the sky": frame - 200, "restored": restored, "truth": sky}
for axis, (title, picture) in zip(axes, panels.items(), strict=True):
    axis.imshow(stretched(picture), cmap="magma", vmin=0, vmax=stretched(sky.max() / 20))
    axis.set_title(title)
    axis.axis("off")
plt.show()
