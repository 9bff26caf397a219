"""The documentation site: `make docs` builds it with Sphinx from the Markdown files of the whole repository, without network."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from textwrap import shorten
from typing import Any

from disagg_serving import __version__
from docutils import nodes
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent

project = "disagg-serving"
author = "disagg-serving"
release = version = __version__
extensions = ["myst_parser"]
root_doc = "docs/index"
# the sources stay where they are, so that their links lead to the same files on GitHub and here
include_patterns = ["README.md", "CONTRIBUTING.md", "SCOPE.md", "SECURITY.md", "docs/**", "examples/*/README.md"]
exclude_patterns = ["**/node_modules", "**/__pycache__", "**/.*", ".*", "build", "dist", "tests", "stacks", "components", "bench", "changelog.d"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
myst_links_external_new_tab = False
nitpicky = True
smartquotes = False  # flags begin with two dashes

html_theme = "sphinx_book_theme"
html_title = "disagg-serving"
html_theme_options = {
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "navbar_persistent": [],  # one search is enough
}
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"  # without one, browsers ask for /favicon.ico
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None
html_use_index = False  # nothing is marked for one

SHORTEST_DESCRIPTION, LONGEST_DESCRIPTION = 40, 160
PICTURE = re.compile(r'<picture>\n  <source media="\(prefers-color-scheme: dark\)" srcset="(.+)">\n  <img alt="(.+)" src="(.+)">\n</picture>')


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _without_empty_patterns)
    app.connect("source-read", _of_both_themes)
    app.connect("html-page-context", _described)
    app.connect("build-finished", _front_door)
    app.connect("build-finished", _lost)


def _without_empty_patterns(_: Sphinx, page: str, source: list[str]) -> None:
    """The navigation names pages by pattern where more are to come; a pattern without a page would be a warning."""
    if page == root_doc:
        kept = [line for line in source[0].split("\n") if not line.endswith("*") or any((ROOT / "docs").glob(f"{line}.md"))]
        source[0] = "\n".join(kept)


def _of_both_themes(_app: Sphinx, _page: str, source: list[str]) -> None:
    """GitHub chooses between the files of a `<picture>` by its theme; here the theme's own classes do."""
    source[0] = PICTURE.sub(r"```{image} \3\n:alt: \2\n:class: only-light\n```\n```{image} \1\n:alt: \2\n:class: only-dark\n```", source[0])


def _described(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], document: nodes.document | None) -> None:
    """What search engines and links show of a page: its title, once, and how its first paragraph begins."""
    if context.get("title") == project:
        context["title"] = "Overview"
    paragraphs = [" ".join(p.astext().split()) for p in document.findall(nodes.paragraph)] if document is not None else []
    told = next((words for words in paragraphs if len(words) >= SHORTEST_DESCRIPTION), None)
    if told is not None:
        said = shorten(told, LONGEST_DESCRIPTION, placeholder=" ...")
        context["metatags"] = f'{context.get("metatags", "")}<meta name="description" content="{escape(said)}">\n'


def _lost(app: Sphinx, problem: Exception | None) -> None:
    """What a server shows for an address without a page. It is shown at any depth, so its links look for the site's root by themselves."""
    if problem is None:
        Path(app.outdir, "404.html").write_text(Path(app.confdir, "404.html").read_text(encoding="utf-8"), encoding="utf-8")


def _front_door(app: Sphinx, problem: Exception | None) -> None:
    """A first page where one is looked for: pages keep their places in the repository."""
    if problem is None:
        door = f'<!doctype html><meta charset="utf-8"><title>{project}</title><link rel="icon" href="{html_favicon}">'
        door += f'<meta http-equiv="refresh" content="0; url={root_doc}.html">'
        Path(app.outdir, "index.html").write_text(f'{door}<a href="{root_doc}.html">{project}</a>\n', encoding="utf-8")
