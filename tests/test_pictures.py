"""The pictures that README begins with, as pages of every width show them, by day and by night; and the evaluation's
plots.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from weir.tests.browser import chromium, look, words_at_fault
from weir.tests.paths import ROOT

(PICTURE,) = re.findall(r"^<picture>.*?^</picture>", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
PHONES: Final = {320: 288, 390: 358, 600: 568}
WITH_A_COLUMN_BESIDE: Final = {1012: 564, 1280: 832, 1600: 832}
"""Pixels for README's text by the page's width; hosting sites show a side column on wide pages."""

PAGE: Final = """<!doctype html><meta charset=utf-8><meta name=viewport content="width=device-width">
<style>body {{ margin: 0; width: {width}px }} img {{ max-width: 100% }}</style>{content}"""


def shown(browser: Any, page: Path, width: int, room: int) -> tuple[Path, float]:
    """The file that a page shows in README's picture, and its width there."""
    page.write_text(PAGE.format(width=room, content=re.sub(r'"docs/', f'"{(ROOT / "docs").as_uri()}/', PICTURE)))
    look(browser, width)
    browser.get(page.as_uri())
    url, at = browser.execute_script(
        "const image = document.images[0]; return [image.currentSrc, image.getBoundingClientRect().width]"
    )
    return ROOT / "docs" / url.rpartition("/")[2], at


def faint_words(browser: Any) -> list[str]:
    """Words of a picture with a contrast below 4.5 : 1, the minimum of WCAG 2.2 §1.4.3."""
    found: list[str] = browser.execute_script(_CONTRAST)
    return found


def test_the_architecture_reads_on_every_page(tmp_path: Path) -> None:
    page, files = tmp_path / "page.html", {}
    with chromium() as browser:
        for width, room in (PHONES | WITH_A_COLUMN_BESIDE).items():
            files[width], at = shown(browser, page, width, room)
            size = f"<style>svg {{ width: {at}px; height: auto; display: block }}</style>"
            page.write_text(PAGE.format(width=room, content=size + files[width].read_text()))
            for dark in (False, True):
                look(browser, width, dark=dark)
                browser.get(page.as_uri())
                assert words_at_fault(browser) == [], (files[width].name, width, dark)
                assert faint_words(browser) == [], (files[width].name, width, dark)
    assert {file.name for width, file in files.items() if width in PHONES} == {"architecture-narrow.svg"}
    assert files[1280].name == "architecture.svg"


def test_both_drawings_are_of_the_same_parts_in_the_same_colours() -> None:
    wide, narrow = ((ROOT / "docs" / name).read_text() for name in ("architecture.svg", "architecture-narrow.svg"))
    assert re.findall(r"<style>.*</style>", wide, re.DOTALL) == re.findall(r"<style>.*</style>", narrow, re.DOTALL)
    for kind in ("box", "sum", "up", "down", "way"):
        groups = [re.findall(rf'<g class="{kind}".*?</g>|<\w+ class="{kind}"[^>]*>', each) for each in (wide, narrow)]
        of_wide, of_narrow = (sum(len(re.findall("<(?:rect|path)", group)) for group in each) for each in groups)
        assert of_wide == of_narrow > 0, kind


def test_the_evaluations_plots_are_legible_next_to_a_side_column(tmp_path: Path) -> None:
    plots = sorted((ROOT / "docs" / "evaluation").glob("*.svg"))
    assert {f"evaluation/{plot.name}" for plot in plots} == set(
        re.findall(r"!\[[^]]*\]\(([^)]+)\)", (ROOT / "docs" / "evaluation.md").read_text())
    )
    figures = "".join(
        f"<figure style='margin: 0'>{text[text.index('<svg') :]}<figcaption>{plot.name}</figcaption></figure>"
        for plot in plots
        for text in [plot.read_text()]
    )
    size = "<style>svg { max-width: 100%; height: auto; display: block }</style>"
    page = tmp_path / "page.html"
    with chromium() as browser:
        for room in sorted(set(WITH_A_COLUMN_BESIDE.values())):
            page.write_text(PAGE.format(width=room, content=size + figures))
            look(browser, 20_000)
            browser.get(page.as_uri())
            assert words_at_fault(browser) == [], room


_CONTRAST: Final = """
const light = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const numbers = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number), faint = [];
for (const text of document.querySelectorAll("svg text")) {
  const at = text.getBoundingClientRect();
  const behind = document.elementsFromPoint((at.left + at.right) / 2, (at.top + at.bottom) / 2)
    .find(each => each.tagName === "rect");
  const [low, high] = [text, behind].map(each => light(numbers(getComputedStyle(each).fill))).sort((a, b) => a - b);
  const contrast = (high + 0.05) / (low + 0.05);
  if (contrast < 4.5) faint.push(`"${text.textContent}": ${contrast.toFixed(2)}`);
}
return faint;
"""
