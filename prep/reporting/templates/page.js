"use strict";
// Filters: words that an item must contain, and a split. Without this script the page shows everything.
const search = document.getElementById("search");
const split = document.getElementById("split");
const status = document.getElementById("status");
const items = Array.from(document.querySelectorAll("[data-item], [data-split]"), (node) => ({
  node,
  isItem: "item" in node.dataset,
  text: node.textContent.toLowerCase(),
  split: node.dataset.split || "",
}));
const total = items.filter((item) => item.isItem).length;
const sections = Array.from(document.querySelectorAll("[data-filtered]"));

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const item of items) {
    const fits = !item.isItem || words.every((word) => item.text.includes(word));
    const isShown = fits && (!split.value || !item.split || item.split === split.value);
    item.node.hidden = !isShown;
    shown += isShown && item.isItem;
  }
  const isFiltered = words.length > 0 || split.value !== "";
  for (const section of sections) {
    const own = section.querySelectorAll("[data-item]");
    const left = section.querySelectorAll("[data-item]:not([hidden])").length;
    section.querySelector("[data-none]").hidden = !isFiltered || left > 0 || own.length === 0;
  }
  status.textContent = isFiltered ? `${shown.toLocaleString("en")} of ${total.toLocaleString("en")} shown` : "";
}

let waiting = 0;
search.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(filter, 120);
});
split.addEventListener("change", filter);
document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape" && document.activeElement === search) {
    search.value = "";
    filter();
  }
});
document.getElementById("filters").hidden = false;
