from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from factories import STACKS
from photographs import FOLDER, KEYWORD, LEFT_OUT, NAMES, words_in_view

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = (*STACKS, "difference", "many", "own-nodes", "refused", "several")
LOWEST_CONTRAST, LOWEST_CONTRAST_OF_SHAPES = 4.5, 3.0
"""WCAG 2.2, success criteria 1.4.3 and 1.4.11."""

CONTRASTS = """([selector, property]) => {
  const parts = (c) => c.match(/[\\d.]+/g).map(Number);
  const clear = (c) => parts(c).length > 3 && parts(c)[3] === 0;
  const light = (c) => {
    const [r, g, b] = parts(c).slice(0, 3).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) if (!clear(getComputedStyle(e).backgroundColor)) return getComputedStyle(e).backgroundColor;
    return "rgb(255, 255, 255)";
  };
  const found = [];
  for (const e of document.querySelectorAll(selector)) {
    if (!e.checkVisibility() || e.disabled) continue;
    if (property === "color" && ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [light(getComputedStyle(e)[property]), light(behind(property === "color" ? e : e.parentElement))].sort((x, y) => y - x);
    found.push([Math.round((a + 0.05) / (b + 0.05) * 100) / 100, e.outerHTML.slice(0, 120)]);
  }
  return found;
}"""
"""Contrast of each visible element's colour with what is behind it, with the element's beginning."""

BEYOND = """() => [...document.querySelectorAll("main *")].filter((e) => {
  if (!e.checkVisibility() || e.closest(".wide, pre, svg")) return false;
  const box = e.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 1 || box.left < -1 || (e.scrollWidth > e.clientWidth + 2 && getComputedStyle(e).display !== "inline"
    && e.clientWidth && getComputedStyle(e).overflowX === "visible"));
}).map((e) => e.outerHTML.slice(0, 120))"""
"""Elements that stick out of the window, or whose contents stick out of them."""

OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll(".way > *, .pool, .node, .pod")].map((e) => [e, e.getBoundingClientRect()]);
  const found = [];
  boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
    if (a.contains(b) || b.contains(a)) return;
    const across = Math.min(p.right, q.right) - Math.max(p.left, q.left), down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (across > 1 && down > 1) found.push(a.className + " / " + b.className);
  }));
  return found;
}"""


@contextmanager
def opened(browser: Browser, file: Path, *, width: int = 1280, scheme: Any = "light", script: bool = True) -> Iterator[Page]:
    """A page in a window of its own, which must neither ask for anything nor complain."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script)
    page = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(file.as_uri())
    yield page
    context.close()
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
    assert said == []


def test_topology_of_prod(browser: Browser, pages: dict[str, Path]) -> None:
    """The picture of prod shows two prefill pods and four decode pods on two nodes, with all their GPUs and EFA devices, and the way of KV."""
    with opened(browser, pages["prod"]) as page:
        assert page.locator(".node").count() == 2
        assert (page.locator(".pod.prefill").count(), page.locator(".pod.decode").count(), page.locator(".pod").count()) == (2, 4, 6)
        assert [page.locator(f".pod.{r} .slots.gpu i").count() for r in ("prefill", "decode")] == [8, 8]
        assert [page.locator(f".pod.{r} .slots.efa i").count() for r in ("prefill", "decode")] == [32, 32]
        assert page.locator(".hop.kv").inner_text().split("\n")[1:] == ["KV cache", "NIXL over EFA"]
        order = [page.locator(s).bounding_box() for s in (".client", ".routers", ".lane >> nth=0", ".hop.kv", ".lane >> nth=1")]
        assert [box["x"] for box in order if box] == sorted(box["x"] for box in order if box)
        assert len(order) == sum(box is not None for box in order)


def test_other_topologies(browser: Browser, pages: dict[str, Path]) -> None:
    """Stages over nodes are linked, models on common pools stand in one picture, and many like nodes are one."""
    with opened(browser, pages["glm5-pp"]) as page:
        assert page.locator(".node").count() == 2
        assert page.locator(".link").inner_text() == "NCCL over EFA"
    with opened(browser, pages["many"]) as page:
        assert page.locator(".scene").count() == 3
        assert page.locator(".scene >> nth=0 >> .router").count() == 2
        assert page.locator("text=/^\\d+ nodes, each/").count() >= 1
        assert page.locator(".pool").count() == 4
    with opened(browser, pages["own-nodes"]) as page:
        assert page.locator(".pool").count() >= 1
        assert page.locator(".pod").count() >= 2


def test_checks_are_filtered(browser: Browser, pages: dict[str, Path]) -> None:
    """Level, rule and text each narrow the checks, together too; the count says how many are left, and nothing found is said."""
    with opened(browser, pages["prod"]) as page:
        part = page.locator("#p0-checks")
        shown, count = part.locator("[data-item]:visible"), part.locator("[data-count]")
        total = shown.count()
        assert count.inner_text() == f"{total} of {total} shown"
        part.get_by_label("notes").uncheck()
        assert [shown.count(), count.inner_text()] == [1, f"1 of {total} shown"]
        assert "pd-tensor-parallel" in shown.inner_text()
        part.get_by_label("notes").check()
        part.locator("select").select_option("quota")
        assert shown.count() == 1
        part.locator("select").select_option("")
        part.get_by_role("searchbox").fill("EFA networkPolicy")
        assert shown.count() == 1
        part.get_by_role("searchbox").fill("no such words")
        assert shown.count() == 0
        assert part.get_by_text("Nothing matches").is_visible()


def test_resources_are_searched(browser: Browser, pages: dict[str, Path]) -> None:
    """The search finds resources by type, name and what is in their inputs; with a base they are filtered by what happens to them."""
    with opened(browser, pages["prod"]) as page:
        part = page.locator("#p0-resources")
        shown = part.locator("[data-item]:visible")
        part.get_by_role("searchbox").fill("leaderworkerset decode")
        assert "LeaderWorkerSet prod-llama-70b/llama-70b-decode" in shown.all_inner_texts()
        assert shown.count() < 10
        part.get_by_role("searchbox").fill("VLLM_NIXL_SIDE_CHANNEL_PORT")
        assert shown.count() == 2
        part.get_by_role("button", name="Open all").click()
        assert part.locator("pre:visible").count() >= 2
    with opened(browser, pages["difference"]) as page:
        part = page.locator("#p0-resources")
        part.locator("select").select_option("replace")
        assert "eks Cluster prod" in part.locator("[data-item]:visible").inner_text()
        part.locator("select").select_option("delete")
        assert part.locator("[data-item]:visible").count() == 1


def test_differences_are_shown_worst_first(browser: Browser, pages: dict[str, Path]) -> None:
    """With a base the verdict counts the changes, and what breaks something stands above the rest with its values."""
    with opened(browser, pages["difference"]) as page:
        assert "1 change breaks what runs" in page.locator(".sentence").inner_text()
        assert page.locator("#p0-changes .change").first.inner_text().split()[:2] == ["error", "replaced"]
        assert "forces the replacement" in page.locator("#p0-changes .change").first.inner_text()
        assert page.locator("#p0-changes tr.warning").count() == 1


def test_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    """All works without a mouse: skip link, links, boxes, search by a key, details; and what has the focus is seen."""
    with opened(browser, pages["prod"]) as page:

        def focused(what: str) -> Any:
            return page.evaluate(f"() => document.activeElement.{what}")

        page.keyboard.press("Tab")
        assert focused("className") == "skip"
        box = page.locator(".skip").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        page.keyboard.press("Enter")
        assert focused("id") == "main"
        page.keyboard.press("/")
        assert focused("type") == "search"
        assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.type("quota/")
        assert page.locator("#p0-checks [data-item]:visible").count() == 0
        page.keyboard.press("Escape")
        assert page.locator("#p0-checks [data-item]:visible").count() == 8
        page.locator("#p0-checks summary").first.focus()
        page.keyboard.press("Enter")
        assert page.locator("#p0-checks details").first.get_attribute("open") is not None
        page.get_by_label("note").focus()
        page.keyboard.press("Space")
        assert page.locator("#p0-checks [data-item]:visible").count() == 1
        page.get_by_role("link", name="Cost").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("() => document.querySelector('#p0-cost').getBoundingClientRect().top") < 200


def test_theme_follows_the_system_until_chosen(browser: Browser, pages: dict[str, Path]) -> None:
    """The page is light or dark as the system is, and the button goes through system, light and dark."""

    def background(page: Page) -> str:
        return str(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))

    with opened(browser, pages["dev"], scheme="dark") as page:
        dark = background(page)
        page.get_by_role("button", name="Theme").click()
        light = background(page)
        page.get_by_role("button", name="Theme").click()
        assert background(page) == dark != light
    with opened(browser, pages["dev"], scheme="light") as page:
        assert background(page) == light


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_or_overlaps(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """From 400 to 1280 pixels nothing sticks out of the window or of its box, and boxes of the picture keep apart, with everything opened."""
    for width in (400, 640, 960, 1024, 1280):
        with opened(browser, pages[name], width=width) as page:
            page.evaluate("() => document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width
            assert page.evaluate(BEYOND) == [], width
            assert page.evaluate(OVERLAPS) == [], width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_contrast(browser: Browser, pages: dict[str, Path], name: str, scheme: str) -> None:
    """Every text has at least the contrast of WCAG AA with what is behind it, and so have the shapes that carry meaning."""
    with opened(browser, pages[name], scheme=scheme) as page:
        page.evaluate("() => document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        texts = page.evaluate(CONTRASTS, ["body *", "color"])
        assert len(texts) > 20
        assert [t for t in texts if t[0] < LOWEST_CONTRAST] == []
        shapes = [
            ("rect:not(.reserve)", "fill"),
            (".slots.gpu i", "borderTopColor"),
            (".slots.efa i", "backgroundColor"),
            ("input, select", "borderTopColor"),
        ]
        for selector, property_ in shapes:
            found = page.evaluate(CONTRASTS, [f":not(.idle) > {selector}" if selector == ".slots.efa i" else selector, property_])
            assert [f for f in found if f[0] < LOWEST_CONTRAST_OF_SHAPES] == [], selector


def test_without_scripts(browser: Browser, pages: dict[str, Path]) -> None:
    """Where scripts are off, everything can be read, and controls that would do nothing are not there."""
    with opened(browser, pages["prod"], script=False) as page:
        assert page.locator("#p0-checks [data-item]:visible").count() == 8
        assert page.locator(".pod:visible").count() == 6
        assert page.locator(".filters:visible, .theme:visible").count() == 0


@pytest.mark.parametrize("name", NAMES)
def test_pictures(browser: Browser, pages: dict[str, Path], name: str, rewrite_golden: bool) -> None:  # noqa: FBT001
    """The documentation keeps a picture of prod in both colours and widths; `--rewrite-golden` makes them anew, with the words in view."""
    file = FOLDER / f"{name}.png"
    _, scheme, width = name.split("-")
    if rewrite_golden:
        image: Any = pytest.importorskip("PIL.Image")
        chunks: Any = pytest.importorskip("PIL.PngImagePlugin").PngInfo()
        chunks.add_itxt(KEYWORD, words_in_view(pages["prod"].read_text(encoding="utf-8")), zip=True)
        with opened(browser, pages["prod"], width=int(width), scheme=scheme) as page:
            page.evaluate(f"() => document.querySelector('#{LEFT_OUT}').remove()")
            picture = image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
        picture.quantize(256).save(file, optimize=True, pnginfo=chunks)
    head = file.read_bytes()
    assert struct.unpack(">I", head[16:20]) == (int(width),)
    assert len(head) < 200_000
