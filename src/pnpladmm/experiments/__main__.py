"""`python -m pnpladmm.experiments table ...`: what `pnpladmm experiment table ...` does."""

from pnpladmm.allocator import keep_memory
from pnpladmm.experiments.commands import main

keep_memory()
main()
