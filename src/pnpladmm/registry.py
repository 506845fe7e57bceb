"""Things by name: those of this package register themselves, other packages add theirs by entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from pnpladmm.tensors import InputError

T = TypeVar("T")


class Registry(Generic[T]):
    """Named things of one kind, such as methods. Names are found in any case, with underscores for hyphens.

    Parameters
    ----------
    kind : str
        What the things are, in one word, for errors: `method`.
    group : str
        The group of entry points that other packages use: `pnpladmm.methods`. An entry point is loaded when its name
        is asked for, not before.

    Examples
    --------
    >>> import pnpladmm as pl
    >>> "tv" in pl.DENOISERS, "fast" in pl.METHODS
    (True, True)
    >>> pl.METHODS["FISTA"].__name__
    'FISTA'
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind, self.group = kind, group
        self._things: dict[str, T] = {}
        self._points: dict[str, EntryPoint] | None = None

    def register(self, name: str) -> Callable[[T], T]:
        """Add what is decorated under `name`."""

        def add(thing: T) -> T:
            if name in self._things:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._things[name] = thing
            return thing

        return add

    def names(self) -> tuple[str, ...]:
        """All names, those of this package first."""
        return (*self._things, *(name for name in self._others() if name not in self._things))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._known(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __getitem__(self, name: str) -> T:
        known = self._known(name)
        if known is None:
            raise InputError(f"{self.kind} {name!r}: choose one of {', '.join(self.names())}")
        if known in self._things:
            return self._things[known]
        point = self._others()[known]
        try:
            thing: T = point.load()
        except Exception as error:  # whatever the other package does wrong, say whose it is
            raise InputError(f"{self.kind} {name!r}: {point.value} cannot be loaded ({error})") from error
        return self._things.setdefault(known, thing)

    def _known(self, name: str) -> str | None:
        """The registered name that `name` stands for: itself, or one that differs in case or in `_` for `-`."""
        names = self.names()
        if name in names:
            return name
        return next((known for known in names if _plain(known) == _plain(name)), None)

    def _others(self) -> dict[str, EntryPoint]:
        """The entry points of other packages."""
        if self._points is None:
            self._points = {point.name: point for point in entry_points(group=self.group)}
        return self._points


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
