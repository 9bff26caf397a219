"""The documentation site as `make docs` builds it: no warning, nothing from elsewhere, and no link inside it that is broken."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from documents import build_site, documents
from factories import ROOT

LOADS = {"link": "href", "script": "src", "img": "src", "source": "src", "iframe": "src", "object": "data", "video": "src", "audio": "src"}
"""What a browser fetches by itself."""
NOT_LOADED = {"canonical", "next", "prev", "index", "search", "author"}


class Page(HTMLParser):
    """What a page loads, where it leads, and what can be led to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.ids: set[str] = set()
        self.images: list[str] = []
        self.icons: list[str] = []
        self.description = ""
        text = file.read_text(encoding="utf-8")
        self.title = text.partition("<title>")[2].partition("</title>")[0]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called for each tag."""
        given = {key: value or "" for key, value in attrs}
        self.ids |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.leads.append(given["href"])
        if tag == "meta" and given.get("name") == "description":
            self.description = given["content"]
        if tag == "img":
            self.images.append(given.get("alt", ""))
        if tag == "link" and given.get("rel") == "icon":
            self.icons.append(given["href"])
        if tag in LOADS and LOADS[tag] in given and given.get("rel", "") not in NOT_LOADED:
            self.loads.append(given[LOADS[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    pytest.importorskip("sphinx", reason="the generator of the site is not installed (make docs)")
    return build_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Every page of the site."""
    return {file: Page(file) for file in sorted(site.rglob("*.html")) if "_static" not in file.parts}


def test_every_document_is_a_page(site: Path, pages: dict[Path, Page]) -> None:
    """Each document of the repository can be read on the site, and reached from its first page."""
    assert [d for d in documents() if not (site / d.relative_to(ROOT)).with_suffix(".html").exists()] == []
    first = {Path(urlsplit(link).path).stem for link in pages[site / "docs/index.html"].leads}
    assert {"quick-start", "concepts", "tutorial", "playbook", "proof", "operations", "security", "troubleshooting", "rules", "cli"} <= first


def test_nothing_is_fetched_from_elsewhere(pages: dict[Path, Page], site: Path) -> None:
    """The site can be read without a network: fonts, styles, scripts and pictures are its own."""
    foreign = {load for page in pages.values() for load in page.loads if urlsplit(load).scheme not in ("", "data") or load.startswith("//")}
    assert foreign == set()
    styles = [css.read_text(encoding="utf-8") for css in site.rglob("*.css")]
    assert len(styles) > 3
    assert [css for css in styles if "@import url(http" in css.replace('"', "").replace("'", "") or "url(http" in css.replace('"', "")] == []


def test_every_page_names_its_icon(pages: dict[Path, Page], site: Path) -> None:
    """A browser asks for no /favicon.ico, which is not there: each page, also the first one, names the icon that it carries."""
    assert site / "index.html" in pages
    icons = {file: [(file.parent / icon).resolve() for icon in page.icons] for file, page in pages.items()}
    assert {file: found for file, found in icons.items() if found != [site / "_static/favicon.svg"]} == {}


def test_links_of_the_site_lead_somewhere(pages: dict[Path, Page], site: Path) -> None:
    """Every link between pages leads to a file of the site, and to a place on it."""
    broken = []
    for file, page in pages.items():
        for link in [*page.leads, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or link in ("#", ""):
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.is_file() or (parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids):
                broken.append(f"{file.relative_to(site)}: {link}")
    assert broken == []


def test_pictures_are_described(pages: dict[Path, Page], site: Path) -> None:
    """Who cannot see a picture is told what it shows, by the page and by the picture itself."""
    assert [file for file, page in pages.items() if not all(page.images)] == []
    drawn = [*(ROOT / "docs/pictures").glob("*.svg")]
    assert len(drawn) == len([svg for svg in (site / "_images").glob("*.svg") if svg.name != "observability.svg"]) == 4
    for svg in drawn:
        text = svg.read_text(encoding="utf-8")
        assert all(part in text for part in ('role="img"', "<title id=", "<desc id=", "prefers-color-scheme:dark"))


def test_pages_say_what_they_are(pages: dict[Path, Page], site: Path) -> None:
    """Each page has a title of its own and a description for search engines and previews; no page is empty."""
    of_documents = {file: page for file, page in pages.items() if file not in {site / name for name in ("index.html", "404.html", "search.html")}}
    titles = [page.title for page in of_documents.values()]
    assert sorted(titles) == sorted(set(titles))
    assert [file.relative_to(site).as_posix() for file, page in of_documents.items() if len(page.description) < 20] == []
    assert not (site / "genindex.html").exists()


def test_navigation_names_each_page_once(site: Path) -> None:
    """A page stands in the navigation at one place, or a reader takes one for two."""
    listed = re.findall(r'<li class="toctree-l1[^"]*"><a class="[^"]*" href="([^"]*)"', (site / "docs/concepts.html").read_text(encoding="utf-8"))
    assert [one for one in sorted(set(listed)) if listed.count(one) > 1] == []
    assert len(listed) > 60


def test_a_lost_reader_finds_back(pages: dict[Path, Page], site: Path) -> None:
    """There is a page for addresses that lead nowhere, with ways on."""
    assert {"docs/index.html", "search.html"} <= set(pages[site / "404.html"].leads)
