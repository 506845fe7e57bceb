"""`python -m pnpladmm.workshop.experiments table ...`: what `pnpladmm experiment table ...` does."""

from pnpladmm.allocator import keep_memory
from pnpladmm.workshop.experiments.commands import main

keep_memory()
main()
