"""A blind kernel is tried before it is returned: the picture restored with it must look better than it was."""

from __future__ import annotations

import numpy as np
import torch

from pnpladmm.blur.arrays import Array
from pnpladmm.estimate.psf_field import uniform_blur
from pnpladmm.restoration.never_worse import NO_FIT
from pnpladmm.restore import restore
from pnpladmm.solvers import Status


def sharpens(picture: Array, counts: Array, kernel: Array, uncertainty: float, device: torch.device | str) -> bool:
    """Would `restore` return a sharper picture (H, W) with this kernel, or withdraw it, or call the kernel wrong?

    Pixels where `counts` is False are left out.
    """
    size = picture.shape[0], picture.shape[1]
    blur = uniform_blur(kernel, size, "blind").noted(uncertainty=uncertainty)
    result = restore(picture.astype(np.float32), blur, mask=~counts, device=device)
    told_wrong = any(warning.startswith(NO_FIT) for warning in result.warnings)
    return result.status is not Status.WITHDRAWN and not told_wrong
