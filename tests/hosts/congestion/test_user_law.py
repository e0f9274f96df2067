"""A file of the user's own is a window law by its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.hosts.congestion import LAWS, ExplicitWindow, Feedback, Setting
from weir.hosts.errors import InvalidLaw
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.wire.control import Pacing

EXAMPLE = ROOT / "examples" / "user_law.py"
SETTING = Setting(window=8, round_bytes=1_094, streams=1, hops=9, rates_bps={})
LAW = """
from weir.hosts.congestion import WindowLaw
from weir.hosts.congestion.laws import LawDescription
class Own(WindowLaw):
    {body}
    def window(self, now_ns):
        return {window}
DESCRIPTION = LawDescription("own", "nothing", lambda setting: {made}, bounded={bounded}, reads_int={reads_int})
"""


def written(folder: Path, **parts: object) -> str:
    """Path of a law with these parts."""
    known = {"body": "pass", "window": 99, "made": "Own()", "bounded": False, "reads_int": False}
    (folder / "own.py").write_text(LAW.format(**(known | parts)))
    return str(folder / "own.py")


def heard(window: int | None, marked: int = 0) -> Feedback:
    return Feedback(now_ns=1, rounds=8, marked=marked, in_flight=0, window=window, round_trip_ns=None)


def test_example_halves_on_marks_within_the_allowance() -> None:
    law = LAWS[str(EXAMPLE)].make(SETTING)
    law.begin(Pacing(window=8), 0)
    law.update(heard(100))
    assert law.window(1) == 9
    law.update(heard(100, marked=8))
    law.update(heard(100, marked=8))
    assert law.window(1) == 4
    law.update(heard(3))
    assert law.window(1) == 3, "the switches allow no more"


@pytest.mark.parametrize("bounded", [True, False])
def test_only_a_bounded_law_is_limited_to_the_allowance(bounded: bool, tmp_path: Path) -> None:
    law = LAWS[written(tmp_path, bounded=bounded)].make(SETTING)
    allowed = ExplicitWindow()
    for each in (law, allowed):
        each.begin(Pacing(window=4, lease_ns=100), 0)
        each.update(heard(7))
    for now_ns, window in ((1, 7), (101, 1)):
        assert allowed.window(now_ns) == window
        assert law.window(now_ns) == (window if bounded else 99)


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        ({"made": "None"}, ": DESCRIPTION"),
        ({"body": "int_header = b'INT'"}, ""),
        ({"body": "int_header = 'INT'", "reads_int": True}, ""),
    ],
)
def test_a_law_without_the_parts_of_one_is_refused(parts: dict[str, object], key: str, tmp_path: Path) -> None:
    path = written(tmp_path, **parts)
    with raises(InvalidLaw, place=f"{path}{key}"):
        LAWS[path].make(SETTING)


@pytest.mark.parametrize("window", [0, -3, 2.5, None])
def test_a_window_that_is_no_whole_number_from_one_is_refused(window: object, tmp_path: Path) -> None:
    path = written(tmp_path, window=window)
    with raises(InvalidLaw, place=path, value=window):
        LAWS[path].make(SETTING).window(0)


def test_description_without_a_setting_parameter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        LAW.format(body="pass", window=1, made="", bounded=False, reads_int=False).replace("lambda setting: ", "Own")
    )
    with raises(InvalidLaw, place=f"{path}: DESCRIPTION"):
        LAWS[str(path)].make(SETTING)
