"""`python -m pnpladmm` is the command `pnpladmm`."""

from pnpladmm.cli import main

main()
