"""`pnpladmm bench`: what the parts cost, beside what others' cost, in one run on one machine.

- `operators`: the blur and its adjoint against deepinv's and scipy's;
- `restoration`: whole restorations, seconds and PSNR;
- `shares`: where the time of a restoration goes;
- `growth`: time and memory against pixels and against the number of kernels.

Each is a module with `run(options) -> Report`; `timing` holds the stop-watch, `rivals` the other tools, `scenes`
what is measured on. Ratios come from one run with the rivals taking turns, so that a busy machine slows all of them.
"""
