"""
Defocus by depth
================

A wide aperture blurs what is far from the focal plane. Where the depth is known, here from a pair of cameras, the
radius of the blur is known at every pixel. `pl.as_blur` takes such a map as it is.
"""

# %%
# The scene and its depth
# -----------------------
# The disparity says how near a pixel is. Pixels that the second camera did not see have none: they get the value of
# the nearest pixel that has one.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import skimage.data
from scipy.ndimage import distance_transform_edt, gaussian_filter

import pnpladmm as pl

folder = Path(skimage.data.__file__).parent
sharp = plt.imread(folder / "motorcycle_left.png")[100:400, 180:560, :3]
disparity = np.load(folder / "motorcycle_disp.npz")["arr_0"][100:400, 180:560]
nearest = distance_transform_edt(~np.isfinite(disparity), return_distances=False, return_indices=True)
disparity = gaussian_filter(disparity[tuple(nearest)], 2)

# %%
# The blur
# --------
# The lens is focused on the nearest parts. The radius of the disc grows with the distance from there, up to five
# pixels.

radius = 5 * (disparity.max() - disparity) / np.ptp(disparity)
blur = pl.as_blur(radius, kind="defocus")
print(blur.source, *blur.notes, sep="\n")
blurred = pl.simulate(sharp, blur, noise=1.5 / 255)

# %%
# The restoration
# ---------------

result = pl.restore(blurred.picture, blurred.blur)
print(result)

cut = (sharp.shape[0] - result.image.shape[-2]) // 2
truth = sharp[cut : cut + result.image.shape[-2], cut : cut + result.image.shape[-1]]
pictures = {
    "radius of the blur (pixels)": radius,
    "blurred": blurred.picture.to_array(),
    "restored": np.asarray(result),
    "truth": truth,
}
figure, axes = plt.subplots(2, 2, figsize=(11, 8.6), layout="constrained")
for axis, (title, picture) in zip(axes.flat, pictures.items(), strict=True):
    drawn = axis.imshow(picture.clip(0, 1) if picture.ndim == 3 else picture)
    axis.set_title(title)
    axis.axis("off")
    if picture.ndim == 2:
        figure.colorbar(drawn, ax=axis, shrink=0.8)
plt.show()
