"""The documentation site: `make docs` builds it with Sphinx from the Markdown files of the whole repository, without network."""

from __future__ import annotations

from pathlib import Path

from disagg_serving import __version__

ROOT = Path(__file__).resolve().parent.parent

project = "disagg-serving"
author = "disagg-serving"
release = version = __version__
extensions = ["myst_parser"]
root_doc = "docs/index"
# the sources stay where they are, so that their links lead to the same files on GitHub and here
include_patterns = ["README.md", "CONTRIBUTING.md", "docs/**", "examples/*/README.md"]
exclude_patterns = ["**/node_modules", "**/__pycache__", "**/.*", ".*", "build", "dist", "tests", "stacks", "components", "bench", "changelog.d"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = [
    "toc.empty_glob",  # the navigation names pages by pattern where more are to come
    "misc.highlighting_failure",
]
nitpicky = True

html_theme = "sphinx_book_theme"
html_title = "disagg-serving"
html_theme_options = {
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "home_page_in_toc": False,
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None
