"""
Finding the blur
================

Where does the kernel come from? `pl.estimate_blur` finds it in the picture: from stars or beads, from a sharp picture
of the same scene, from the spectrum, or from edges. Each way says how far to trust what it found.
"""

# %%
# From a sharp picture of the same scene
# --------------------------------------
# Two things moved in different ways. The regions are found, not given.

import matplotlib.pyplot as plt
import numpy as np
import skimage.data

import pnpladmm as pl
from pnpladmm.blur import common_size, defocus, gaussian, motion
from pnpladmm.workshop.bench.star_fields import StarField, random_stars

sharp = skimage.data.astronaut()[:240, 100:340] / 255
y, x = np.mgrid[:240, :240]
inside = ((x - 125) ** 2 / 75**2 + (y - 110) ** 2 / 105**2 < 1).astype(float)
true = pl.Blur(common_size([motion(11, 30), gaussian(1.8)]), np.stack([inside, 1 - inside]))
noise = 2 / 255 * np.random.default_rng(0).standard_normal(sharp.shape)
blurred = true.operator("replicate").forward(pl.Picture.from_array(sharp).pixels)[0].permute(1, 2, 0).numpy() + noise

found = pl.estimate_blur(blurred, "sharp", sharp=sharp)
print(found.source, f"expected error {100 * found.uncertainty:.1f} %", *found.notes, sep="\n")
restored = np.asarray(pl.restore(blurred, found, noise=2 / 255))


def show(panels, kernels=()):
    """Pictures in a row, and kernels."""
    count = len(panels) + len(kernels)
    _, axes = plt.subplots(1, count, figsize=(2.2 * count, 2.4), layout="constrained")
    for axis, (title, picture) in zip(axes, [*panels.items(), *dict(kernels).items()], strict=True):
        axis.imshow(picture.clip(0) if picture.shape[0] < 60 else picture.clip(0, 1), cmap="gray")
        axis.set_title(title, fontsize=8)
        axis.axis("off")
    plt.show()


show(
    {
        "blurred": blurred,
        "sharp reference": sharp,
        "restored": restored,
        "where kernel 0 acts": found.weights[0].numpy(),
    },
    [(f"kernel {i}", kernel[0].numpy()) for i, kernel in enumerate(found.kernels[:2])],
)

# %%
# From the picture alone, when the kind of blur is known
# ------------------------------------------------------
# Motion, defocus and Gaussian leave their mark in the spectrum of the picture.

camera = skimage.data.camera()[:320, 60:380] / 255
shaken = pl.simulate(camera, motion(13, 35), noise=2 / 255, boundary="unknown").picture
shaken_blur = pl.estimate_blur(shaken, "parametric", kind="motion")
print(shaken_blur.source, *shaken_blur.notes, *shaken_blur.estimate.warnings, sep="\n")
show(
    {
        "blurred": shaken.pixels[0, 0].numpy(),
        "restored": np.asarray(pl.restore(shaken, shaken_blur, noise=2 / 255)).squeeze(),
    },
    [("true", motion(13, 35).numpy()), ("found", shaken_blur.kernels[0, 0].numpy())],
)

# %%
# From straight edges
# -------------------
# How wide is a step? Edges also say whether a disc or a Gaussian blurred them.

unfocused = pl.simulate(camera, defocus(4.0), noise=2 / 255, boundary="unknown").picture
edge_blur = pl.estimate_blur(unfocused, "edges")
print(edge_blur.source, *edge_blur.notes, *edge_blur.estimate.warnings, sep="\n")
show(
    {
        "blurred": unfocused.pixels[0, 0].numpy(),
        "restored": np.asarray(pl.restore(unfocused, edge_blur, noise=2 / 255)).squeeze(),
    },
    [("true", defocus(4.0).numpy()), ("found", edge_blur.kernels[0, 0].numpy())],
)

# %%
# From stars
# ----------
# 70 stars whose PSF has coma towards the corners. Which field of PSFs they determine is found by cross-validation.

field = StarField(size=(224, 224), coma=2.5)
places, fluxes = random_stars(field.size, 70, 2e5, 3e3, seed=3)
frame = field.frame(places, fluxes, noise=3.0, gain=0.25).astype(np.float32)
stars_blur = pl.estimate_blur(frame, "points")
print(stars_blur.source, *stars_blur.notes, sep="\n")
corner = stars_blur.psf_at(210, 12)[0].numpy()
show(
    {"frame": np.arcsinh((frame - 100) / 50) / 6},
    [
        ("PSF, middle", stars_blur.psf_at(112, 112)[0].numpy() ** 0.5),
        ("PSF, corner", corner**0.5),
        ("truth, corner", field.kernel(12, 210, corner) ** 0.5),
    ],
)
