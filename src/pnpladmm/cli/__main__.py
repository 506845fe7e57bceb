"""`python -m pnpladmm.cli`."""

from pnpladmm.cli import main

main()
