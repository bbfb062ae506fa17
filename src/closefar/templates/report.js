"use strict";

// Sorting and copying are added here, so that without scripts nothing on the page is a dead button.

function sortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", head.dataset.sorted || "none");
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const sign = descending ? -1 : 1;
      const rows = [...body.rows];
      rows.sort((left, right) => sign * compare(left.cells[column], right.cells[column]));
      body.append(...rows);
    });
  });
}

function compare(left, right) {
  if ("value" in left.dataset) return Number(left.dataset.value) - Number(right.dataset.value);
  return left.textContent.trim().localeCompare(right.textContent.trim(), undefined, { numeric: true });
}

function copyable(block) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    const done = await copy(block.querySelector("code").textContent);
    button.textContent = done ? "Copied" : "Select and copy by hand";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  block.querySelector(".bar").append(button);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch (_) {
    return copyBySelection(text);  // a browser that keeps the clipboard from files
  }
}

function copyBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.style.position = "fixed";
  area.style.opacity = "0";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll(".code").forEach(copyable);

// What is folded on the screen is open on paper.
const folded = () => document.querySelectorAll("details:not([open])");
let opened = [];
addEventListener("beforeprint", () => { opened = [...folded()]; opened.forEach((each) => { each.open = true; }); });
addEventListener("afterprint", () => { opened.forEach((each) => { each.open = false; }); opened = []; });
