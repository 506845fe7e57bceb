"""Things by name: those of this package register themselves, other packages add theirs by entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from pnpladmm.tensors import InputError

T = TypeVar("T")


class Registry(Generic[T]):
    """Named things of one kind, such as methods.

    Parameters
    ----------
    kind : str
        What the things are, in one word, for errors: `method`.
    group : str
        The group of entry points that other packages use: `pnpladmm.methods`. An entry point is loaded when its name
        is asked for, not before.
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
        return name in self._things or name in self._others()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __getitem__(self, name: str) -> T:
        if name in self._things:
            return self._things[name]
        point = self._others().get(name)
        if point is None:
            raise InputError(f"{self.kind} {name!r}: choose one of {', '.join(self.names())}")
        try:
            thing: T = point.load()
        except Exception as error:  # whatever the other package does wrong, say whose it is
            raise InputError(f"{self.kind} {name!r}: {point.value} cannot be loaded ({error})") from error
        return self._things.setdefault(name, thing)

    def _others(self) -> dict[str, EntryPoint]:
        """The entry points of other packages."""
        if self._points is None:
            self._points = {point.name: point for point in entry_points(group=self.group)}
        return self._points
