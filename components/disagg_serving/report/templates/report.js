"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  // storage may be refused, as it is for files in some browsers
  const stored = { get() { try { return localStorage.getItem("theme"); } catch { return null; } }, set(v) { try { localStorage.setItem("theme", v); } catch { /* not kept then */ } } };
  const themes = ["system", "light", "dark"];
  const toggle = document.querySelector("[data-theme-toggle]");
  const show = (theme) => {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    toggle.querySelector("span").textContent = theme;
  };
  let theme = themes.includes(stored.get()) ? stored.get() : "system";
  show(theme);
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    show(theme);
    stored.set(theme);
  });

  for (const list of document.querySelectorAll("[data-list]")) {
    const items = [...list.querySelectorAll("[data-item]")];
    const controls = [...list.querySelectorAll("[data-filter]")];
    if (!controls.length) continue;
    const texts = new Map();
    const textOf = (item) => texts.get(item) ?? texts.set(item, item.textContent.toLowerCase()).get(item);
    const count = list.querySelector("[data-count]");
    const none = list.querySelector("[data-none]");
    const boxes = controls.filter((c) => c.type === "checkbox");
    const matches = (item) => {
      if (boxes.length && !boxes.some((b) => b.checked && item.dataset[b.dataset.filter] === b.value)) return false;
      return controls.every((c) => {
        if (c.type === "checkbox" || c.value === "") return true;
        if (c.dataset.filter !== "text") return item.dataset[c.dataset.filter] === c.value;
        return c.value.toLowerCase().split(/\s+/).every((word) => textOf(item).includes(word));
      });
    };
    const apply = () => {
      let shown = 0;
      for (const item of items) {
        item.hidden = !matches(item);
        shown += !item.hidden;
      }
      count.textContent = `${shown} of ${items.length} shown`;
      none.hidden = shown > 0;
    };
    for (const control of controls) control.addEventListener(control.type === "search" ? "input" : "change", apply);
    const open = list.querySelector("[data-open]");
    if (open) {
      open.hidden = false;
      open.addEventListener("click", () => {
        const all = items.filter((i) => !i.hidden).map((i) => i.querySelector("details"));
        const opening = all.some((d) => !d.open);
        for (const details of all) details.open = opening;
        open.textContent = opening ? "Close all" : "Open all";
      });
    }
    apply();
  }

  // "/" goes to the search of the part that is in view, Escape empties it
  document.addEventListener("keydown", (event) => {
    const field = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
    if (event.key === "/" && !field && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const searches = [...document.querySelectorAll("input[type=search]")];
      const seen = (s) => s.closest("[data-list]").getBoundingClientRect();
      const best = searches.find((s) => seen(s).top < innerHeight / 2 && seen(s).bottom > innerHeight / 3) ?? searches[0];
      if (best) {
        event.preventDefault();
        best.focus();
      }
    } else if (event.key === "Escape" && event.target instanceof HTMLInputElement && event.target.type === "search") {
      event.target.value = "";
      event.target.dispatchEvent(new Event("input"));
    }
  });
})();
