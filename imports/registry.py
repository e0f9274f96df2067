"""Things of one kind by name: one module each in a folder, or a file of the user's, named by its path.

Each module ends in a DESCRIPTION, an object of the kind's own class with a `name`. Strategies, synchronisation modes,
collective operations, workloads, optimisers and papers are registered this way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Protocol, TypeVar

from ..errors import PlacedError
from ..errors.values import shown
from . import user_files


class Named(Protocol):
    """Description with a name."""

    @property
    def name(self) -> str:
        """The registered name."""


D = TypeVar("D", bound=Named)


class Registry(Mapping[str, D]):
    """Descriptions by name; a path that ends in `.py` is a user's file. Iteration lists the registered names."""

    def __init__(
        self,
        package: str,
        folders: Iterable[str],
        kind: type[D],
        noun: str,
        error: type[PlacedError],
        first: str = "",
        adopt: Callable[[D, str], D] = lambda description, _: description,
    ) -> None:
        """Import all modules of a package.

        Args:
            package: Its name, as in `__name__`.
            folders: Its folders, as in `__path__`.
            kind: Class of the descriptions.
            noun: Name of the kind in error messages, such as "window law".
            error: Raised for an unknown name, and for a file without a description.
            first: Name that is listed first, such as the default; the others follow by module name.
            adopt: Returns the description to use for that of a user's file, whose path it is given.

        Raises:
            ValueError: Two modules have the same name.
        """
        self._kind = kind
        self._noun = noun
        self._error = error
        self._adopt = adopt
        self._user: dict[str, D] = {}
        """Descriptions of users' files by path."""
        members: dict[str, D] = {}
        for module in sorted(module.name for module in iter_modules(folders)):
            description: D = import_module(f"{package}.{module}").DESCRIPTION
            if description.name in members:
                raise ValueError(f'{package}.{module}: {noun} "{description.name}" exists already; take another name')
            members[description.name] = description
        self._registered = dict(sorted(members.items(), key=lambda item: item[0] != first))

    def __getitem__(self, name: str) -> D:
        """Return a description by name or path.

        Raises:
            KeyError: The name is not registered.
            Exception: The class given as `error`, if there is no such file or it has no DESCRIPTION. Whatever the file
                itself raises passes through.
        """
        if name.endswith(user_files.ENDING):
            return self._user_description(str(Path(name).resolve()))
        return self._registered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._registered)

    def __len__(self) -> int:
        return len(self._registered)

    def describe(self, name: str) -> D:
        """Return a description by name or path; an unknown name raises `error`, which lists the known ones."""
        if not isinstance(name, str):
            raise self._error(
                f"{self._noun} {shown(name)} is not a name", value=name, allowed=[*self, "the path of a Python file"]
            )
        if name not in self:
            close = get_close_matches(name, self._registered, 1)
            meant = f', did you mean "{close[0]}"?' if close else ""
            raise self._error(
                f'unknown {self._noun} "{name}"{meant}', value=name, allowed=[*self, "the path of a Python file"]
            )
        return self[name]

    def _user_description(self, path: str) -> D:
        if path not in self._user:
            if not os.path.isfile(path):  # which raises nothing for a name that is too long
                raise self._error(
                    f"no such file; a {self._noun} outside the package is named by the path of its Python file",
                    place=path,
                    value=path,
                )
            description = getattr(user_files.run_file(Path(path)), "DESCRIPTION", None)
            if not isinstance(description, self._kind):
                raise self._error(
                    f"{description!r} describes no {self._noun}; the file of one ends in a "
                    f"{self._kind.__name__} of {self._kind.__module__}",
                    place=f"{path}: DESCRIPTION",
                    value=description,
                )
            self._user[path] = self._adopt(description, path)
        return self._user[path]
