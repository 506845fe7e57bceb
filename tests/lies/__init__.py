"""Denoisers that lie, and parameters at their edges: no run may end with a false status or a false certificate.

    PYTHONPATH=tests python -m lies --count 2000 --seed 0

`cases.py` draws a problem, a denoiser, a method and its parameters; of each denoiser it is known what is true of it.
`truth.py` finds out, without the code that judged the run, whether what was said of it is so.
"""
