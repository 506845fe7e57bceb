"""What a way of finding a blur is, and the registry of ways."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from pnpladmm.blur import Blur
from pnpladmm.estimate.scene import Scene
from pnpladmm.registry import Registry
from pnpladmm.tensors import InputError

Tell: TypeAlias = Callable[[str, float], object]
"""Called with what is being done ("kernel, scale 3 of 6") and the share of the work that is done, 0 to 1."""


class Way(ABC):
    """One way to find a blur: a frozen dataclass whose fields are its options, all with defaults or checked.

    A way lives in one file and registers itself with `@WAYS.register("name")`.
    """

    switch: ClassVar[str | None] = None
    """The option that the command line's `--name VALUE` fills; None where `--name` is a switch without a value."""

    @abstractmethod
    def estimate(self, scene: Scene, tell: Tell) -> Blur:
        """The blur of a scene, with `uncertainty` and `estimate`.

        Kernels have their centre at `k // 2` and sum to one over the field. Raises `InputError` where the picture does
        not show enough; what is found but weak goes into `estimate.warnings`.
        """

    def page(self, scenes: list[Scene]) -> Scene:
        """Which of several pages to take when nobody said."""
        name, count = scenes[0].name, len(scenes)
        raise InputError(f"{name} has {count} pages: say which (page 0 to {count - 1})")


WAYS: Registry[type[Way]] = Registry("way", "pnpladmm.ways")
"""Ways by name. An entry point of the group `pnpladmm.ways` names a subclass of `Way`."""


def make_way(name: str, options: dict[str, Any]) -> Way:
    """The way with its options; an unknown option is refused with those that the way has."""
    if not isinstance(name, str):
        raise InputError(f"way = {name!r}: choose one of {', '.join(WAYS)}")
    kind = WAYS[name]
    known = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]  # every way is a dataclass
    for option in options:
        if option not in known:
            raise InputError(f"way {name} has no option {option!r}: it takes {', '.join(known) or 'none'}")
    try:
        return kind(**options)
    except TypeError:
        missing = [f.name for f in dataclasses.fields(kind) if f.name not in options and _is_needed(f)]  # type: ignore[arg-type]
        raise InputError(f"way {name} needs {', '.join(missing)}") from None


def way_given(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The one way that a command line names, and the option that its value fills.

    `given` holds the value of each way's switch; None and False are not given.
    """
    named = {name: value for name, value in given.items() if value is not None and value is not False}
    if len(named) != 1:
        what = "several ways are given" if named else "no way is given"
        raise InputError(f"{what}: choose one of {', '.join('--' + name for name in given)}")
    ((name, value),) = named.items()
    switch = WAYS[name].switch
    return name, {} if switch is None else {switch: value}


def _is_needed(field: Any) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
