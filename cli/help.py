"""Layout of `--help`: plain text of eighty columns, commands in groups, and example lines at the end."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperGroup

TRAIN: Final = "Train"
COMPARE: Final = "Compare"
FABRICS: Final = "Fabrics"
PROGRAMS: Final = "P4 programs"
CONTROL: Final = "Control plane"
MACHINE: Final = "First steps"
"""Groups of commands, as `rich_help_panel` of each names them."""

STRATEGY_NAMES: Final = (
    "widest, blind, best-spine, hierarchy, hashed-hierarchy, rack, root, random, nearest, agg, scarce, oracle, atp, "
    "canary, grid, ps, or FILE.py of your own"
)
POLICY_NAMES: Final = "abort, continue or wait"
"""Policy names that options accept; unknown names are refused with a list.

They are typed here because `--help` imports no module that defines them; a test compares them with the registered ones.
"""


class Groups(TyperGroup):
    """Lists commands by their groups, in the order in which they were registered."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a refused value is named in the error, with what is allowed."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _refusal(error.__cause__) or error.message
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the groups, a section each."""
        groups: dict[str, list[tuple[str, str]]] = {}
        commands = {name: self.commands[name] for name in self.list_commands(ctx)}
        room = formatter.width - 6 - max(map(len, commands))  # where a first sentence still stands on one line
        for name, command in commands.items():
            panel = getattr(command, "rich_help_panel", None)
            group = groups.setdefault(panel if isinstance(panel, str) else "Commands", [])
            group.append((name.ljust(max(map(len, commands))), command.get_short_help_str(room)))
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _refusal(cause: object) -> str:
    """Return the value that typer's parser (pydantic) refused, and what is allowed; "" for other causes."""
    if not hasattr(cause, "errors"):
        return ""
    detail = cause.errors()[0]
    value, limits = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "int_parsing" | "int_from_float":
            return f'"{value}" is not a whole number'
        case "float_parsing":
            return f'"{value}" is not a number; write it like 0.5'
        case "greater_than_equal":
            return f"{value} is too small; write {limits['ge']:g} or more"
        case "less_than_equal":
            return f"{value} is too large; write {limits['le']:g} or less"
        case _:
            return str(detail["msg"]).removeprefix("Value error, ")


def command_group(**settings: Any) -> typer.Typer:
    """Return a command that has commands: its help is plain text."""
    return typer.Typer(
        cls=Groups, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}, **settings
    )


def examples(*lines: str) -> str:
    """Return the end of a command's help: lines that can be typed."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def complete_strategy(incomplete: str) -> list[str]:
    """Complete a strategy's name for a shell; without a match the shell completes names of files."""
    from ..controller.placement.strategies import STRATEGIES

    return [name for name in STRATEGIES if name.startswith(incomplete)]


def complete_policy(incomplete: str) -> list[str]:
    """Complete a policy's name for a shell."""
    from ..hosts.drivers.control_client import POLICIES

    return [name for name in POLICIES if name.startswith(incomplete)]
