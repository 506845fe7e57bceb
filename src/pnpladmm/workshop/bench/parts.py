"""The rows of a long run that are finished, kept in a file beside its result: a stopped run goes on from there."""

from __future__ import annotations

from collections.abc import Callable

from pnpladmm.workshop.bench.report import Options, Row


class Parts:
    """Rows by key. Where nothing is kept (`--quick`, no folder) all are measured."""

    def __init__(self, options: Options, name: str) -> None:
        self._options, self._name = options, name
        self._rows = options.known(name)

    def row(self, key: str, measure: Callable[[], Row]) -> Row:
        """The row of a key; measured and written if it is not there."""
        if key not in self._rows:
            self._rows[key] = measure()
            self._options.keep(self._name, key, self._rows[key])
        return self._rows[key]
