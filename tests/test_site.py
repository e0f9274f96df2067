"""The documentation site: MkDocs builds it without a warning, and every link in it leads to a file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

import weir
from weir.tests.paths import ROOT

_LINK: Final = re.compile(r'(?:href|src|srcset)="([^"#?]+)')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("MkDocs is not installed: make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1000)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


@pytest.mark.document
def test_links_of_the_site_lead_to_files(site: Path) -> None:
    missing = set()
    for page in site.rglob("*.html"):
        for link in _LINK.findall(page.read_text()):
            inside = not re.match(r"[a-z]+:|/", link)  # the page for errors has absolute links
            if inside and not (page.parent / unquote(link)).exists():
                missing.add((str(page.relative_to(site)), link))
    assert missing == set()


@pytest.mark.document
def test_api_reference_has_every_public_name(site: Path) -> None:
    page = (site / "api" / "index.html").read_text()
    named = set(re.findall(r'id="weir\.(\w+)"', page))
    assert named >= {name for name in weir.__all__ if not name.startswith("_")}
