"""A blind kernel is tried before it is returned: the picture restored with it must look better than it was."""

from __future__ import annotations

import numpy as np
import torch

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.psf_field import uniform_blur
from pnpladmm.restore import restore
from pnpladmm.solvers import Status


def sharpens(picture: Array, counts: Array, kernel: Array, uncertainty: float, device: torch.device | str) -> bool:
    """Would `restore` return a sharper picture (H, W) with this kernel, or withdraw it?

    Pixels where `counts` is False are left out.
    """
    size = picture.shape[0], picture.shape[1]
    blur = uniform_blur(kernel, size, "blind").noted(uncertainty=uncertainty)
    result = restore(picture.astype(np.float32), blur, mask=~counts, device=device)
    return result.status is not Status.WITHDRAWN
