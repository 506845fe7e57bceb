"""Restored pictures seen through a wished PSF: point sources then have one known width all over the frame."""

from __future__ import annotations

from dataclasses import replace

import torch

from pnpladmm.blur import Blur
from pnpladmm.restoration.inputs import BlurLike, blur_for
from pnpladmm.restoration.result import Restoration
from pnpladmm.solvers import Status
from pnpladmm.tensors import InputError

LEAST_SUM, MOST_SUM = 0.98, 1.02
"""A PSF keeps the light."""


def reconvolved(found: Restoration, target: BlurLike) -> Restoration:
    """The restored picture, blurred with the target PSF; pictures that were withdrawn stay as they are.

    What is known of convergence is about the picture before that.
    """
    blur = blur_for(target, found.before)
    if not isinstance(blur, Blur):
        raise InputError("target_psf is an operator: give an array of the PSF, a Blur or a blur file")
    total = blur.psf_at(blur.size[0] // 2, blur.size[1] // 2).sum((-2, -1))
    if not bool(((total > LEAST_SUM) & (total < MOST_SUM)).all()):
        raise InputError(f"target_psf has the sum {float(total.flatten()[0]):.4g}: a PSF has the sum 1")
    seen = blur.operator("replicate").forward(found.image)
    kept = torch.tensor([status is Status.WITHDRAWN for status in found.statuses], device=seen.device)
    seen = torch.where(kept.view(-1, 1, 1, 1), found.image, seen)
    picture = found.picture.with_pixels(seen.cpu().to(found.picture.pixels.dtype))
    notes = (*found.notes, f"seen through the target PSF {blur.source}, which all sources now have")
    return replace(found, image=seen, picture=picture, notes=notes)
