"""
A photograph with two kinds of blur
===================================

The cup is out of focus, and the camera moved. Each region gets its own kernel.
"""

# %%
# The picture
# -----------
# We blur a sharp photograph so that we can compare with the truth. `pl.simulate` makes what a camera would give:
# light from outside the frame enters the picture, and the file has noise.

import matplotlib.pyplot as plt
import numpy as np
import skimage.data

import pnpladmm as pl
from pnpladmm.blur import defocus, motion

sharp = skimage.data.coffee()[20:300, 90:450]
cup = np.array([[60, 20], [250, 20], [270, 170], [220, 250], [90, 250], [50, 180]])  # corners as x, y

# A pair without a polygon is the background.
blur = pl.as_blur(
    [(None, motion(9, 20).numpy()), (cup, defocus(3.5).numpy())],
    size=sharp.shape[:2],
    feather=5,
)
blurred = pl.simulate(sharp, blur, noise=2 / 255, boundary="reflect")

# %%
# The restoration
# ---------------
# `restore` estimates the noise and chooses the settings. Whatever looks wrong is in `result.warnings`.

result = pl.restore(blurred.picture, blurred.blur)
print(result)
print("notes:", *result.notes, sep="\n  ")
print("warnings:", result.warnings or "none")

# %%
# Before and after
# ----------------

pictures = {"blurred": np.asarray(blurred.picture.to_array()), "restored": np.asarray(result), "truth": sharp}
figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    axis.imshow(picture)
    axis.set_title(title)
    axis.axis("off")
plt.show()

# %%
# The same blur can be written by hand as a YAML file for the command line::
#
#     background:
#       motion: {length: 9, angle: 20}
#     regions:
#       - polygon: [[60, 20], [250, 20], [270, 170], [220, 250], [90, 250], [50, 180]]
#         defocus: {radius: 3.5}
#     feather: 5
