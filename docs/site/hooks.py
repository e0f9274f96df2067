"""MkDocs hooks: make the site from the documents as they are in the repository.

Documents link to each other and to source files by their paths in the repository, so that links work where the code is
hosted. The site has documents alone; these hooks add README (as the first page), CONTRIBUTING and CHANGELOG, an API
reference of the names in `weir.__all__`, and every source file that a document links to.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

import weir

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages from outside docs/, by repository path, and their names on the site."""
_LINK: Final = re.compile(r'(\]\(|\bsrc(?:set)?=")([^)#:"\s]+)(?=[)#"])')
_GITHUB_SLUG: Final = re.compile(r"[^\w -]")


def slug(heading: str, separator: str) -> str:
    """Return the anchor of a heading as GitHub makes it: lower case, hyphens for spaces, no other signs."""
    return _GITHUB_SLUG.sub("", heading.strip().lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    """Use GitHub's anchors, which the documents' links have."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files from outside docs/."""
    for path, name in PAGES.items():
        files.append(File.generated(config, name, content=_with_site_links(path, (ROOT / path).read_text())))
    files.append(File.generated(config, "api.md", content=_api_reference()))
    for path in sorted(_linked_sources()):
        files.append(File.generated(config, _source_name(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links of a document at the site's files."""
    if page.file.generated_by:
        return markdown
    return _with_site_links(f"docs/{page.file.src_uri}", markdown)


def _with_site_links(path: str, markdown: str) -> str:
    def site_link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2]))
        if target in PAGES:
            return match[1] + PAGES[target]
        if target.startswith("docs/"):
            return match[1] + target.removeprefix("docs/")
        return match[1] + _source_name(target)

    return _LINK.sub(site_link, markdown)


def _source_name(path: str) -> str:
    """Name of a source file on the site: as text, which browsers show and Python tools pass over."""
    return f"source/{path}.txt"


def _linked_sources() -> set[str]:
    """Repository paths of the files outside docs/ that a document links to."""
    sources = set()
    for path in [ROOT / name for name in PAGES] + sorted((ROOT / "docs").glob("*.md")):
        for _, link in _LINK.findall(path.read_text()):
            target = (path.parent / link).resolve()
            if target.is_relative_to(ROOT) and target.is_file() and target.suffix != ".md":
                sources.add(target.relative_to(ROOT).as_posix())
    return {path for path in sources if not path.startswith("docs/")}


def _api_reference() -> str:
    names = sorted((name for name in weir.__all__ if not name.startswith("_")), key=str.lower)
    sections = "\n\n".join(f"::: weir.{name}" for name in names)
    return f"# Python API\n\nThe names that `import weir` offers; each is loaded when it is first used.\n\n{sections}\n"
