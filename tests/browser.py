"""Headless Chromium for tests, and checks of the words that it shows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

MIN_POINTS: Final = 9.0


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser, driven by selenium; skips the test where it is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("Chromium and its driver are not installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1400,900",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        browser.set_page_load_timeout(60)
        yield browser
    finally:
        browser.quit()


def look(browser: Any, width: int, *, dark: bool = False) -> None:
    """Show the page on a screen of this width in CSS pixels; a narrow one is a phone's."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})


def words_at_fault(browser: Any) -> list[str]:
    """Illegible words: those of pictures that overlap others, are cut off, or are smaller than nine points; and
    pictures that exceed the page's edge.
    """
    found: list[str] = browser.execute_script(_LOOK, MIN_POINTS)
    return found


_LOOK: Final = """
const least = arguments[0] * 96 / 72 - 0.05, faults = [];
const width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width) faults.push(`the page is wider than ${width} px`);
for (const svg of document.querySelectorAll("svg")) {
  const page = svg.getBoundingClientRect();
  if (!page.width) continue;
  const name = svg.closest("figure")?.innerText.trim().split("\\n").pop() ?? "";
  if (page.right > width + 0.5) faults.push(`${name}: ends at ${page.right} of ${width} px`);
  const seen = [];
  for (const text of svg.querySelectorAll("text")) {
    const at = text.getBoundingClientRect(), matrix = text.getScreenCTM(), words = text.textContent.trim();
    if (!at.width) continue;
    const size = Math.hypot(matrix.a, matrix.b) * parseFloat(getComputedStyle(text).fontSize);
    if (size < least) faults.push(`${name}: "${words}" has ${size * 72 / 96} points`);
    if (at.left < page.left - 1 || at.right > page.right + 1 || at.top < page.top - 1 || at.bottom > page.bottom + 1)
      faults.push(`${name}: "${words}" is cut off`);
    for (const [other, there] of seen)
      if (Math.min(at.right, there.right) - Math.max(at.left, there.left) > 1 &&
          Math.min(at.bottom, there.bottom) - Math.max(at.top, there.top) > 3)
        faults.push(`${name}: "${words}" is over "${other}"`);
    seen.push([words, at]);
  }
}
return faults;
"""
"""A line of text has some room above and below its letters, which may be shared."""
