"use strict";
(() => {
  const ROW = 56;
  const $ = (id) => document.getElementById(id);
  const make = (tag, text, name) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (name) element.className = name;
    return element;
  };

  const unpack = async (id) => {
    const element = $(id);
    const bytes = Uint8Array.from(atob(element.textContent.trim()), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };

  const size = Number($("list").dataset.chunk);
  const chunks = new Map();
  const detail = async (number) => {
    const chunk = Math.floor(number / size);
    if (!chunks.has(chunk)) chunks.set(chunk, unpack(`chunk-${chunk}`));
    return (await chunks.get(chunk))[number % size];
  };

  let all = [], shown = [], chosen = -1;

  const draw = () => {
    const list = $("list"), first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const last = Math.min(shown.length, first + Math.ceil(list.clientHeight / ROW) + 8);
    const items = [];
    for (let place = first; place < last; place += 1) {
      const row = all[shown[place]], item = make("div", undefined, "item");
      item.style.top = `${place * ROW}px`;
      item.id = `item-${place}`;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(place === chosen));
      item.append(make("span", row.right ? "✓ " : "✗ ", row.right ? "good" : "bad"), row.question);
      const where = [row.source, row.kind.replaceAll("_", " "), row.answer || row.failure || "no answer"];
      item.append(make("small", where.filter(Boolean).join(" · ")));
      item.addEventListener("click", () => choose(place));
      items.push(item);
    }
    $("rows").replaceChildren(...items);
  };

  const filter = () => {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const source = $("source").value, kind = $("kind").value, verdict = $("verdict").value, origin = $("origin").value;
    shown = [];
    all.forEach((row, number) => {
      if (source && row.source !== source) return;
      if (kind && row.kind !== kind) return;
      if (origin && row.origin !== origin) return;
      if (verdict && row.right !== (verdict === "right")) return;
      if (words.some((word) => !row.text.includes(word))) return;
      shown.push(number);
    });
    $("rows").style.height = `${shown.length * ROW}px`;
    $("count").textContent = `${shown.length.toLocaleString("en")} of ${all.length.toLocaleString("en")} rollouts`;
    chosen = -1;
    $("list").scrollTop = 0;
    draw();
  };

  const step = (call, children, runs) => {
    const box = make("div");
    const facts = `${call.model} · ${call.tokens} tokens written, ${call.read} read · ${call.seconds} s`;
    box.append(make("div", facts + (call.trained ? " · trained on" : ""), "dim"));
    box.append(make("pre", call.text, call.trained ? "trained" : ""));
    for (const child of children.get(call.id) || []) box.append(branch(child, children, runs));
    if (call.seen !== null) box.append(make("pre", call.seen, call.error ? "seen bad" : "seen"));
    return box;
  };

  const branch = (run, children, runs) => {
    const box = make("details", undefined, "run"), head = make("summary");
    box.open = runs <= 12 || run.parent === null;
    head.append(make("strong", run.role), ` ${run.task} `, make("span", `(${run.status.replaceAll("_", " ")})`, "dim"));
    box.append(head);
    if (run.calls.length) {
      const prompt = make("details");
      prompt.append(make("summary", "system prompt", "dim"), make("pre", run.calls[0].system));
      box.append(prompt);
    }
    for (const call of run.calls) box.append(step(call, children, runs));
    box.append(make("div", `report: ${run.report || "none"}`, "dim"));
    return box;
  };

  const choose = async (place) => {
    if (place < 0 || place >= shown.length) return;
    chosen = place;
    const list = $("list"), top = place * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    draw();
    list.setAttribute("aria-activedescendant", `item-${place}`);
    const row = all[shown[place]], found = await detail(shown[place]);
    if (chosen !== place) return;
    const children = new Map();
    for (const run of found.runs) children.set(run.parent, [...(children.get(run.parent) || []), run]);
    const tree = $("tree"), verdict = make("p");
    const parts = [make("strong", row.question), make("p", `${row.id} · ${row.source}`, "dim"), verdict];
    verdict.append(make("span", row.right ? "right" : "wrong", row.right ? "good" : "bad"));
    verdict.append(` · answer “${row.answer}”, gold “${row.gold}” (${row.failure || row.reason})`);
    if (row.origin) parts.push(make("p", `lost at ${row.origin}`, "bad"));
    for (const run of children.get(null) || []) parts.push(branch(run, children, found.runs.length));
    tree.replaceChildren(...parts);
    tree.scrollTop = 0;
  };

  const fill = (id, values) => {
    for (const value of [...new Set(values)].filter(Boolean).sort()) {
      const option = make("option", value.replaceAll("_", " "));
      option.value = value;
      $(id).append(option);
    }
  };

  const start = async () => {
    all = await unpack("index");
    for (const row of all) row.text = `${row.id} ${row.question} ${row.answer} ${row.gold} ${row.origin}`.toLowerCase();
    fill("source", all.map((row) => row.source));
    fill("kind", all.map((row) => row.kind));
    fill("origin", all.map((row) => row.origin));
    $("search").addEventListener("input", filter);
    for (const id of ["source", "kind", "verdict", "origin"]) $(id).addEventListener("change", filter);
    $("list").addEventListener("scroll", draw);
    $("list").addEventListener("keydown", (event) => {
      const move = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
      if (move === undefined) return;
      event.preventDefault();
      choose(Math.min(shown.length - 1, Math.max(0, chosen + move)));
    });
    window.addEventListener("resize", draw);
    filter();
    document.body.dataset.ready = "true";
  };
  start();
})();
