"""Registries that other packages add to, by entry points.

A package names its additions in its pyproject.toml, for example a method:

    [project.entry-points."gaflow.methods"]
    my_method = "my_package:MY_METHOD"

The conventions this file owns: **gaflow's own entries come first**, and looking up one of them imports no plug-in. The
plug-ins of a registry are imported when somebody lists it, or asks for a name that gaflow does not have. A plug-in
that fails, or that takes a name which is taken, is left out with a warning that names it and its package.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from gaflow.errors import GaflowWarning, visible

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_keys, dict_values

Item = TypeVar("Item")

_LOADING = threading.RLock()  # a plug-in may list a registry while it is imported


class Registry(dict[str, Item]):
    """A dict of gaflow's own entries that gets those of plug-ins when they are needed.

    `check` is called with the name and the object of a plug-in, and raises an error if the object cannot be used.
    `reserved` are further names that plug-ins cannot take.
    """

    def __init__(
        self,
        items: Mapping[str, Item],
        group: str,
        check: Callable[[str, Any], None],
        reserved: Collection[str] = (),
    ):
        super().__init__(items)
        self.group = group
        self.built_in = dict(items)
        self.broken: dict[str, str] = {}  # name of a plug-in that failed -> reason
        self._check = check
        self._reserved = reserved
        self._loaded = False

    def load(self) -> None:
        """Import the plug-ins, if that has not happened yet."""
        with _LOADING:
            if self._loaded:
                return
            self._loaded = True
            messages = []
            for point in sorted(entry_points(group=self.group), key=_package):
                reason = self._add(point)
                if reason is not None:
                    self.broken.setdefault(point.name, reason)
                    origin = f"{self.group}: {point.name!r} of the package {_package(point)!r}"
                    messages.append(f"{origin} is left out: {reason}")
        for message in messages:  # after all are loaded, because warnings may be errors
            warnings.warn(visible(message), GaflowWarning, stacklevel=3)

    def _add(self, point: EntryPoint) -> str | None:
        """Add the object of an entry point; the reason if that is not possible."""
        if point.name in self.built_in or point.name in self._reserved:
            return "gaflow itself uses this name; rename it"
        if dict.__contains__(self, point.name):
            return "another package uses this name too; uninstall one of them"
        try:
            item = point.load()
            self._check(point.name, item)
        except (Exception, SystemExit) as error:  # whatever importing a package may do, but for Ctrl-C
            first_line = str(error).strip().split("\n")[0]
            return f"{type(error).__name__}: {first_line}"
        self[point.name] = item
        return None

    def __getitem__(self, name: str) -> Item:
        if not dict.__contains__(self, name):
            self.load()
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        if not dict.__contains__(self, name):
            self.load()
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self.load()
        return super().__iter__()

    def __len__(self) -> int:
        self.load()
        return super().__len__()

    def get(self, name: str, default: Item | None = None) -> Item | None:  # type: ignore[override]
        if name not in self:
            return default
        return self[name]

    def keys(self) -> dict_keys[str, Item]:
        self.load()
        return super().keys()

    def values(self) -> dict_values[str, Item]:
        self.load()
        return super().values()

    def items(self) -> dict_items[str, Item]:
        self.load()
        return super().items()


def _package(point: EntryPoint) -> str:
    return "" if point.dist is None else point.dist.name
