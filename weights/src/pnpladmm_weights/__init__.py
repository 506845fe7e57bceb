"""The large weights of pnpladmm's networks, found by `pnpladmm.load_denoiser` where this package is installed."""
