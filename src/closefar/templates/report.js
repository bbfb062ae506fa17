"use strict";

// Sorting, copying and hints are added here, so that without scripts nothing on the page is a dead button.

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

// A table that is wider than its frame fades out where it goes on, and says so.
function hinted(frame) {
  const hint = document.createElement("p");
  hint.className = "hint";
  hint.textContent = "Scroll sideways to see all columns →";
  hint.hidden = true;
  frame.after(hint);
  const look = () => {
    hint.hidden = frame.scrollWidth <= frame.clientWidth + 1;
    frame.classList.toggle("cut", frame.scrollLeft + frame.clientWidth < frame.scrollWidth - 1);
  };
  frame.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(frame);
  look();
}

document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll(".code").forEach(copyable);
document.querySelectorAll(".scroll").forEach(hinted);

// What is folded on the screen is open on paper.
const folded = () => document.querySelectorAll("details:not([open])");
let opened = [];
addEventListener("beforeprint", () => { opened = [...folded()]; opened.forEach((each) => { each.open = true; }); });
addEventListener("afterprint", () => { opened.forEach((each) => { each.open = false; }); opened = []; });
