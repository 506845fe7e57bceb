"""`python -m pnpladmm.experiments table ...`: what `pnpladmm experiment table ...` does."""

from pnpladmm.experiments.commands import main

main()
