"""Faults on purpose: kills, full disks, vanished inputs and more, at any moment of any command.

`PYTHONPATH=tests python -m faults --count 300` runs them and prints a table. Each fault is one of `injector.FAULTS` at
a random event of one of `commands.COMMANDS`; `harness.py` says what must hold after it.
"""
