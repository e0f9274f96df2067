"""Help teaches: every command says what it is for in a line, has examples that it would take, and fits 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.main import get_command

from weir.cli.app import app
from weir.cli.evaluate import evaluate
from weir.cli.help import POLICY_NAMES, STRATEGY_NAMES
from weir.controller.placement.reference_schemes import REFERENCE_SCHEMES
from weir.controller.placement.strategies import STRATEGIES
from weir.emulator.ports.options import parse, parse_control
from weir.experiments.baselines import SCHEMES
from weir.hosts.drivers.control_client import POLICIES
from weir.tests.support.commands import weir
from weir.tests.test_snippets import check_line

COLUMNS: Final = 80


def commands(path: tuple[str, ...] = (), command: Any = None, above: Any = None) -> Iterator[tuple[str, str]]:
    """Every command with those that it has: its words, and its help as a terminal shows it."""
    command = get_command(app) if command is None else command
    context = type(above or command.make_context("weir", [], resilient_parsing=True))(
        command, info_name=path[-1] if path else "weir", parent=above
    )
    yield " ".join(path), command.get_help(context)
    for name, within in getattr(command, "commands", {}).items():
        yield from commands((*path, name), within, context)


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(COLUMNS))
        return dict(commands())


def test_every_command_is_there(helps: dict[str, str]) -> None:
    plain = "baselines controller demo doctor evaluate examples launch mininet place ptf replay run schema search stf"
    plain += " strategies top torchrun infer"
    within = {
        "jobs": ["list", "register", "end"],
        "topology": ["check", "draw", "leaf-spine", "fat-tree"],
        "telemetry": ["runs", "links", "link", "events", "sql"],
        "codec": ["list", "check", "bench"],
        "plan": ["compression"],
        "papers": ["show", "run", "page"],
        "model": ["load", "unload", "list", "test", "convert"],
    }
    nested = {f"{name} {each}" for name, all_of in within.items() for each in all_of}
    assert set(helps) == {"", *plain.split(), *within, *nested}


def test_help_fits_eighty_columns(helps: dict[str, str]) -> None:
    wide = {name: line for name, text in helps.items() for line in text.splitlines() if len(line) > COLUMNS}
    assert wide == {}


def test_a_list_of_commands_describes_each_in_a_sentence(helps: dict[str, str]) -> None:
    for name in ("", "jobs", "papers", "codec", "plan", "topology", "telemetry", "model"):
        rows = re.findall(r"^  ([a-z][a-z-]*) {2,}(\S.*)$", helps[name].partition("Examples:")[0], re.MULTILINE)
        assert {row[0] for row in rows} == {
            each.removeprefix(name).strip() for each in helps if each and each.rpartition(" ")[0] == name
        }
        assert [said for _, said in rows if not said.endswith(".") or said.endswith("..")] == []


def test_examples_come_last_and_parse(helps: dict[str, str]) -> None:
    for name, text in helps.items():
        before, heading, lines = text.partition("  Examples:\n")
        assert heading, name
        assert before.rstrip().endswith("Show this message and exit.") or name in (
            "",
            "jobs",
            "papers",
            "codec",
            "plan",
            "topology",
            "telemetry",
            "model",
        )
        words = [line.strip() for line in lines.splitlines()]
        assert any(re.search(rf"\bweir {name}", line) for line in words), name
        for line in words:
            check_line(line.replace(" --help", ""))  # which would print it


def test_options_name_all_that_they_take() -> None:
    assert set(STRATEGY_NAMES.removesuffix(", or FILE.py of your own").split(", ")) == set(STRATEGIES)
    assert set(re.split(", | or ", POLICY_NAMES)) == set(POLICIES)
    assert evaluate.__doc__ is not None
    assert re.findall(r"([\w-]+) \(", evaluate.__doc__.partition("Five more")[2]) == list(REFERENCE_SCHEMES)
    (scheme,) = [param for param in get_command(app).commands["baselines"].params if param.name == "scheme"]  # type: ignore[attr-defined]
    assert set(re.split(", | or ", scheme.help.removeprefix("Only this one: ").split(";")[0])) == set(SCHEMES)


def test_the_switchs_help_fits_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    for ask in (parse, parse_control):
        with pytest.raises(SystemExit):
            ask(["--help"])
        shown = capsys.readouterr().out
        assert "usage: weir-switch" in shown
        assert [line for line in shown.splitlines() if len(line) > COLUMNS] == []


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("weir to", {"top", "topology", "torchrun"}),
        ("weir topology ch", {"check"}),
        ("weir run --stra", {"--strategy"}),
        ("weir place fabric.yaml --strategy ra", {"rack", "random"}),
        ("weir launch --policy a", {"abort"}),
        ("weir jobs register --policy ", set(POLICIES)),
        ("weir place fabric.yaml --strategy own_st", set()),
    ],
)
def test_a_shell_completes_commands_options_and_names(
    typed: str, completed: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Completion works like the script that `weir --install-completion` gives bash, which completes files without a
    match.
    """
    asked = {"_WEIR_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split(" ")) - 1)}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    assert set(weir(folder=tmp_path).out.split()) == completed
