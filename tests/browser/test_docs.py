"""The documentation's pictures and site in a real Chromium, light and dark, wide and narrow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from documents import build_site
from factories import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DRAWN = sorted((ROOT / "docs/pictures").glob("*.svg"))
SHOWN = (
    "docs/index", "docs/concepts", "docs/tutorial", "docs/troubleshooting", "docs/observability", "docs/proof", "docs/reference/stack-file",
    "docs/reference/catalogue", "docs/rules", "docs/reports", "docs/how-to/debug-nixl", "docs/how-to/buy-capacity", "README", "CONTRIBUTING",
)  # fmt: skip
LOWEST_CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3."""
SMALLEST_LETTERS = 11
"""Pixels."""

TEXTS = """() => {
  const light = (c) => {
    const [r, g, b] = c.match(/[\\d.]+/g).map(Number).slice(0, 3).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const rects = [...document.querySelectorAll("rect")];
  const texts = [...document.querySelectorAll("text")].map((e) => [e, e.getBBox()]);
  const [, , width, height] = document.documentElement.getAttribute("viewBox").split(" ").map(Number);
  const inside = (box, x, y) => box.x <= x && x <= box.x + box.width && box.y <= y && y <= box.y + box.height;
  return texts.map(([e, box], i) => {
    const behind = rects.filter((r) => inside(r.getBBox(), box.x + box.width / 2, box.y + box.height / 2)).at(-1);
    const [a, b] = [light(getComputedStyle(e).fill), light(getComputedStyle(behind).fill)].sort((x, y) => y - x);
    const edge = behind.getBBox();
    const shared = (o, from, size) => Math.min(box[from] + box[size], o[from] + o[size]) - Math.max(box[from], o[from]);
    const overlaps = texts.slice(i + 1).filter(([, o]) => shared(o, "x", "width") > 1 && shared(o, "y", "height") > 4);
    return {
      words: e.textContent,
      contrast: (a + 0.05) / (b + 0.05),
      fits: box.x >= edge.x - 1 && box.x + box.width <= edge.x + edge.width + 1 && box.x + box.width <= width && box.y + box.height <= height,
      overlaps: overlaps.map(([o]) => o.textContent),
    };
  });
}"""
"""Each text of a picture: its contrast with the box behind it, whether it stays in that box, and which others it lies upon."""

TORN = """() => [...document.querySelectorAll(".bd-article :is(td, th)")].flatMap((cell) => {
  const torn = [], texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    for (const word of text.data.matchAll(/[A-Za-z0-9]+/g)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((line) => Math.round(line.top))).size > 1) torn.push(word[0]);
    }
  }
  return torn;
})"""
"""Words in cells of tables that stand on more than one line."""

CUT = """() => [...document.querySelectorAll(".bd-article table")].filter((t) => {
  const box = t.closest(".pst-scrollable-table-container") ?? t.parentElement;
  return t.offsetWidth > box.clientWidth + 1;
}).map((t) => t.rows[0].innerText)"""
"""Heads of tables that are wider than what shows them."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    pytest.importorskip("sphinx", reason="the generator of the site is not installed (make docs)")
    return build_site(tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("picture", DRAWN, ids=lambda p: p.stem)
def test_pictures_can_be_read(browser: Browser, picture: Path, scheme: Any) -> None:
    """Every text of a picture stays in its box, lies upon no other, and stands out from what is behind it."""
    page = browser.new_page(color_scheme=scheme)
    page.goto(picture.as_uri())
    texts = page.evaluate(TEXTS)
    page.close()
    assert len(texts) > 8
    assert [t["words"] for t in texts if t["contrast"] < LOWEST_CONTRAST] == []
    assert [t["words"] for t in texts if not t["fits"]] == []
    assert [(t["words"], t["overlaps"]) for t in texts if t["overlaps"]] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", SHOWN)
def test_pages_are_whole(browser: Browser, site: Path, name: str, width: int, scheme: Any) -> None:
    """A page shows its pictures, asks for nothing that is not its own, reports no fault, is no wider than the window, and tears no word."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked: list[str] = []
    faults: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: faults.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto((site / f"{name}.html").as_uri())
    page.wait_for_load_state("networkidle")
    empty = page.evaluate("[...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src)")
    sideways = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    torn = page.evaluate(TORN)
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert faults == []
    assert empty == []
    assert sideways <= 0
    assert torn == []


@pytest.mark.parametrize("width", [1280, 1600])
def test_no_table_is_cut(browser: Browser, site: Path, width: int) -> None:
    """On the screen of a laptop every table of every page is seen whole, without scrolling sideways."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    cut: dict[str, list[str]] = {}
    seen = 0
    for file in sorted(site.rglob("*.html")):
        if "_static" in file.parts or file == site / "index.html":
            continue
        page.goto(file.as_uri())
        seen += page.locator(".bd-article table").count()
        found = page.evaluate(CUT)
        cut |= {file.relative_to(site).as_posix(): found} if found else {}
    page.close()
    assert cut == {}
    assert seen > 100


def test_what_scrolls_sideways_says_so(browser: Browser, site: Path) -> None:
    """On a phone a table and a picture that go on fade there until their end is reached, and the keyboard gets to them."""
    page = browser.new_page(viewport={"width": 400, "height": 900})
    for name, kind in (("troubleshooting", ".pst-scrollable-table-container"), ("concepts", "p:has(> img)")):
        page.goto((site / f"docs/{name}.html").as_uri())
        page.wait_for_load_state("networkidle")
        box = page.locator(f".bd-article {kind}.goes-on").first
        assert box.evaluate("(e) => e.tabIndex") == 0
        box.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function("document.activeElement.scrollLeft > 0")
        page.evaluate("document.activeElement.scrollLeft = 9999")
        page.wait_for_function("!document.activeElement.classList.contains('goes-on')")
    page.close()


@pytest.mark.parametrize("width", [400, 1000, 1280, 1920])
def test_letters_of_pictures_are_large_enough(browser: Browser, site: Path, width: int) -> None:
    """The smallest letters of the drawn pictures are shown with 11 pixels or more, on every screen."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto((site / "docs/concepts.html").as_uri())
    page.wait_for_load_state("networkidle")
    shown = page.evaluate("[...document.querySelectorAll('.bd-article img')].map((i) => i.width / i.naturalWidth)")
    page.close()
    assert len(shown) == len(DRAWN)
    smallest = min(float(size) for file in DRAWN for size in re.findall(r"font(?:-size)?:(\d+)px", file.read_text(encoding="utf-8")))
    assert min(shown) * smallest >= SMALLEST_LETTERS


def test_a_lost_reader_finds_back(browser: Browser, site: Path) -> None:
    """A server shows the page for lost readers at any address; its links lead to the site's root from there."""
    page = browser.new_page()
    lost = site / "docs/how-to/no-such-page.html"
    lost.write_text((site / "404.html").read_text(encoding="utf-8"), encoding="utf-8")
    for file in (lost, site / "404.html"):
        page.goto(file.as_uri())
        assert page.evaluate("[...document.links].map((a) => a.href)")[0] == (site / "docs/index.html").as_uri()
    page.close()
    lost.unlink()


def test_contents_of_a_page_with_tables_are_behind_a_button(browser: Browser, site: Path) -> None:
    """Where a table takes the column of the contents, a button shows them, and a link of them leads on."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / "docs/troubleshooting.html").as_uri())
    assert not page.locator("#pst-secondary-sidebar").is_visible()
    page.locator("button.secondary-toggle:visible").click()
    link = page.locator("#pst-secondary-sidebar-modal a.nav-link").first
    box = link.bounding_box()
    assert box is not None
    assert 900 < box["x"] < 1280
    link.click()
    assert "#" in page.url
    page.close()
