"""Benchmarks: time, memory and quality of the parts, beside other tools, in one run on one machine.

- `operators`: blur and adjoint against deepinv and scipy;
- `restoration`: whole restorations, seconds and PSNR;
- `shares`: how the time of a restoration is divided between its parts;
- `real`: pictures as files hold them, and PSFs that do not fit: PSNR and warnings;
- `growth`: time and memory against pixels and against the number of kernels.

Each is a module with `run(options) -> Report`. `timing` measures seconds and `instruments` the parts of a run; `rivals`
are the other tools, `inputs` what is measured on. Ratios are from one run in which the rivals take turns, so that other
programs on the machine slow all of them.
"""
