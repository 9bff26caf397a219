// What a style sheet cannot do. Without scripts the pages are whole, too: tables and pictures scroll, long names stay on one line.
"use strict";
addEventListener("DOMContentLoaded", () => {
  // an address or a path in a table may go on in the next line after a sign, never inside a word; copied, it is as before
  const long = 20;
  const texts = document.createTreeWalker(document.querySelector(".bd-article") ?? document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    if (text.parentElement.closest("td, th") && text.data.split(/\s/).some((word) => word.length > long)) found.push(text);
  }
  for (const text of found) {
    text.parentElement.closest("code")?.classList.add("long");
    const parts = text.data.split(/(?<=[/_.=:,@])(?=\w)/);
    text.replaceWith(...parts.flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
  }
  // what scrolls sideways fades where it goes on, and a keyboard reaches it
  for (const box of document.querySelectorAll(".bd-article :is(.pst-scrollable-table-container, pre, p:has(> img))")) {
    const look = () => {
      const wide = box.scrollWidth > box.clientWidth + 1;
      box.tabIndex = wide ? 0 : -1;
      box.classList.toggle("goes-on", wide && box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    };
    box.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(box);
    for (const image of box.querySelectorAll("img")) image.addEventListener("load", look);
  }
});
