"use strict";
(() => {
  const STATES = {
    starting: "working", recovering: "working", serving: "", guarding: "", offline: "bad", absent: "attention", stopped: "attention",
  };
  const [TOPIC, PARTITION, SEGMENTS, SIZE, VERIFIED, VERDICT, FINDINGS] = [0, 1, 2, 3, 4, 5, 6];
  const byId = (id) => document.getElementById(id);
  let state = null;
  let receivedAt = 0;
  let views = [];

  // Text from the disk: what would act upon a reader's eyes or terminal is written as an escape, as the commands do it.
  const UNSAFE = /[\p{C}\p{Zl}\p{Zp}\\]|(?! )\p{Zs}/gu;
  const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };
  function escaped(character) {
    const code = character.codePointAt(0);
    const hex = code.toString(16);
    return SHORT[character] ?? (code < 256 ? "\\x" + hex.padStart(2, "0") : code < 65536 ? "\\u" + hex.padStart(4, "0") : "\\U" + hex.padStart(8, "0"));
  }
  const safe = (text) => String(text).replace(UNSAFE, escaped);

  function make(tag, className, ...children) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    for (const child of children) if (child !== null && child !== undefined && child !== "") made.append(child);
    return made;
  }
  function setText(element, text) { if (element.textContent !== text) element.textContent = text; }

  function bytes(size) {
    if (size < 1024) return `${Math.round(size)} B`;
    let value = size;
    for (const unit of ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]) {
      value /= 1024;
      if (value < 999.95 || unit === "EiB") return `${value.toFixed(1)} ${unit}`;
    }
  }
  function span(seconds) {
    const s = Math.max(Math.round(seconds), 0);
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min`;
    if (s < 86400) { const m = Math.floor((s % 3600) / 60); return `${Math.floor(s / 3600)} h${m ? ` ${m} min` : ""}`; }
    const h = Math.floor((s % 86400) / 3600);
    return `${Math.floor(s / 86400)} d${h ? ` ${h} h` : ""}`;
  }
  const grouped = (number) => String(number).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
  const count = (number, thing, things) => `${grouped(number)} ${number === 1 ? thing : things ?? thing + "s"}`;
  const now = () => state.now_ms + (performance.now() - receivedAt);
  const ago = (ms) => `${span((now() - ms) / 1000)} ago`;
  const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

  // ---- one partition ----
  function ageOf(cell, cycle) {
    if (cell[VERIFIED] === null) return null;
    if (!cycle) return 0;
    return Math.floor((now() - cell[VERIFIED]) / (cycle * 250));
  }
  function classOf(cell, cycle) {
    if (cell[VERDICT] !== "sound") return cell[VERDICT];
    const age = ageOf(cell, cycle);
    return age === null ? "unverified" : age > 3 ? "late" : `a${Math.max(age, 0)}`;
  }
  function described(cell, cycle) {
    const read = cell[VERIFIED] === null ? "never read whole" : `read ${ago(cell[VERIFIED])}`;
    const late = cell[VERIFIED] !== null && cycle && now() - cell[VERIFIED] > cycle * 1000 ? ", later than promised" : "";
    const found = cell[FINDINGS] ? `, ${count(cell[FINDINGS], "finding")}` : "";
    return `${state.words.verdicts[cell[VERDICT]] ?? cell[VERDICT]}, ${read}${late}, ${count(cell[SEGMENTS], "segment")}, ${bytes(cell[SIZE])}${found}`;
  }
  const nameOf = (cell) => safe(`${cell[TOPIC]}-${cell[PARTITION]}`);

  // ---- a log directory ----
  class DirView {
    constructor(index) {
      this.index = index;
      this.title = make("h2", "path");
      this.title.id = `dir-${index}`;
      this.chips = make("div", "head");
      this.reason = make("p", "reason");
      this.facts = make("dl", "facts");
      this.map = make("div", "map");
      this.element = make("section", "dir", this.chips, this.reason, this.facts, this.map);
      this.element.setAttribute("aria-labelledby", this.title.id);
      this.key = null;
      this.cells = [];
      this.current = 0;
    }
    get dir() { return state.log_dirs[this.index]; }
    get cycle() { return this.dir.scrub ? this.dir.scrub.cycle_seconds : 0; }

    update(changed) {
      this.head();
      this.showFacts();
      const key = JSON.stringify(this.dir.cells.map((cell) => [cell[TOPIC], cell[PARTITION]]));
      if (changed === null && key !== this.key) { this.key = key; this.build(); }
      else if (changed === null) this.colour(this.dir.cells.map((_, i) => i));
      else this.colour(changed);
    }
    head() {
      const dir = this.dir;
      setText(this.title, safe(dir.path));
      const chips = [make("span", "chip", dir.mode === "guard" ? "guarded, only read" : "owned"),
        make("span", `chip ${STATES[dir.state] ?? ""}`, `${dir.state} for ${span((now() - dir.since_ms) / 1000)}`)];
      const { broker_id, cluster_id } = dir.owner;
      if (broker_id !== null) chips.push(make("span", "chip owner", `broker ${broker_id}${cluster_id === null ? "" : ` of cluster ${safe(cluster_id)}`}`));
      if (dir.broker_pid !== null) chips.push(make("span", "chip", dir.broker_pid ? `lock held by process ${dir.broker_pid}` : "lock held by another process"));
      this.chips.replaceChildren(this.title, ...chips);
      setText(this.reason, safe(dir.reason));
      this.reason.hidden = !dir.reason;
      this.reason.classList.toggle("mild", dir.state !== "offline");
      this.element.dataset.state = dir.state;
    }
    fact(title, main, more, level, bar) {
      return make("div", `fact${bar && bar.wide ? " wide" : ""}`, make("dt", "", title),
        make("dd", "", make("div", `main ${level ?? ""}`, main), bar ? bar.element : null, make("div", "more", more)));
    }
    bar(value, total, name, { late = false, wide = false } = {}) {
      const element = make("progress", late ? "bar late" : "bar");
      element.max = total || 1;
      element.value = value;
      element.setAttribute("aria-label", name);
      return { element, wide };
    }
    showFacts() {
      const dir = this.dir;
      const facts = [];
      if (dir.recovery) facts.push(this.recoveryFact(dir.recovery));
      if (dir.lag && dir.state !== "offline") {
        const late = dir.lag.seconds > 600;
        facts.push(this.fact("What was just flushed", dir.lag.bytes ? `${span(dir.lag.seconds)} behind` : "all read",
          dir.lag.bytes ? `${bytes(dir.lag.bytes)} in ${count(dir.lag.partitions, "partition")} wait` : "nothing waits", late ? "attention" : ""));
      }
      if (dir.exposure) {
        const { bytes: killed, power_bytes: cut, marked_bytes: marked } = dir.exposure;
        facts.push(this.fact("If the broker were killed now", `${bytes(killed)} to read`,
          `${bytes(cut)} after a power cut: not synced yet; ${bytes(marked)} are marked`));
      }
      if (dir.scrub) facts.push(this.scrubFact(dir.scrub));
      if (dir.quarantine) {
        const kept = dir.quarantine;
        facts.push(this.fact("Quarantine", kept.items ? `${count(kept.items, "piece")}, ${bytes(kept.bytes)}` : "empty",
          kept.items ? `the oldest kept for ${span((now() - kept.oldest_ms) / 1000)}` : "nothing was cut or set aside"));
      }
      if (dir.free_bytes !== null) {
        facts.push(this.fact("Disk", `${bytes(dir.free_bytes)} free`, dir.size_bytes === null ? "" : `${bytes(dir.size_bytes)} of logs`,
          dir.free_bytes < 64 * 2 ** 20 ? "bad" : ""));
      }
      this.facts.replaceChildren(...facts);
      this.facts.hidden = !facts.length;
    }
    recoveryFact(r) {
      if (r.finished_ms !== null) return this.fact("Last recovery", safe(r.result) || "finished", `${ago(r.finished_ms)}, ${bytes(r.done_bytes)} read`);
      const percent = r.total_bytes && r.is_listed ? `${Math.min(Math.floor((r.done_bytes * 100) / r.total_bytes), 100)} %` : "running";
      const left = r.eta_seconds === null ? "" : `, about ${span(r.eta_seconds)} left`;
      const more = `${bytes(r.done_bytes)} of ${r.is_listed ? "" : "at least "}${bytes(r.total_bytes)} read, ${bytes(r.bytes_per_second)}/s; `
        + `${grouped(r.partitions_done)} of ${count(r.partitions_total, "partition")} done, ${count(r.segments_remaining, "segment")} left`;
      return this.fact("Recovery", `${percent}${left}`, more, "", this.bar(r.done_bytes, r.total_bytes, "recovery", { wide: true }));
    }
    scrubFact(s) {
      const read = Math.max(s.bytes_total - s.bytes_due, 0);
      const share = s.bytes_total ? Math.floor((read * 1000) / s.bytes_total) / 10 : 100;
      const late = s.behind_seconds > 0;
      const bad = s.state === "sick_device";
      const main = !s.cycle_seconds ? "off" : bad ? "stopped" : late ? `${span(s.behind_seconds)} late` : s.state === "off" ? "off" : "on time";
      const pace = s.state === "running" ? `${bytes(s.bytes_per_second)}/s` : state.words.scrub[s.state] ?? s.state;
      const oldest = s.oldest_verified_ms === null ? "some never read" : `oldest look ${ago(s.oldest_verified_ms)}`;
      if (!s.segments_total && s.cycle_seconds) return this.fact(`Everything read within ${span(s.cycle_seconds)}`, "nothing yet", "there is nothing to read");
      const why = s.reason && s.reason !== state.words.scrub[s.state] ? `; ${safe(s.reason)}` : "";
      return this.fact(`Everything read within ${span(s.cycle_seconds)}`, main, `${share} % of ${bytes(s.bytes_total)}; ${pace}; ${oldest}${why}`,
        bad ? "bad" : late || s.state === "paused" ? "attention" : "", this.bar(read, s.bytes_total, "read within the promised time", { late }));
    }

    // ---- its map ----
    build() {
      const cells = this.dir.cells;
      this.map.replaceChildren();
      this.cells = [];
      this.map.hidden = !cells.length;
      if (!cells.length) return;
      const topics = new Map();
      cells.forEach((cell, i) => { if (!topics.has(cell[TOPIC])) topics.set(cell[TOPIC], []); topics.get(cell[TOPIC]).push(i); });
      const isGrouped = topics.size <= 40 && cells.length <= 1500;
      const size = this.size(cells.length, isGrouped ? Math.max(...[...topics.values()].map((indexes) => indexes.length)) : 0);
      this.map.style.setProperty("--cell", `${size}px`);
      this.map.style.setProperty("--gap", size > 30 ? "5px" : size > 12 ? "3px" : "2px");
      this.map.classList.toggle("numbered", size > 30);
      this.title2 = make("h3", "", "Partitions");
      this.title2.id = `map-${this.index}`;
      this.legend = make("ul", "legend");
      this.looked = make("p", "looked");
      this.looked.setAttribute("aria-hidden", "true"); // the cells themselves say the same
      this.legendKey = "";
      this.box = make("div", isGrouped ? "topics" : "cells");
      this.box.setAttribute("role", "listbox");
      this.box.setAttribute("aria-orientation", "horizontal");
      this.box.setAttribute("aria-label", `Partitions of ${safe(this.dir.path)}`);
      for (const [topic, indexes] of topics) {
        const made = indexes.map((i) => this.cell(i, size));
        if (!isGrouped) { this.box.append(...made); continue; }
        const name = make("span", "name", safe(topic));
        name.title = safe(topic);
        name.setAttribute("aria-hidden", "true");
        const group = make("div", "topic", name, make("div", "cells", ...made));
        group.setAttribute("role", "group");
        group.setAttribute("aria-label", safe(topic));
        this.box.append(group);
      }
      this.current = Math.min(this.current, cells.length - 1);
      this.map.append(this.title2, this.legend, this.box, this.looked);
      this.colour(cells.map((_, i) => i));
      this.cells[this.current].tabIndex = 0;
      this.box.addEventListener("keydown", (event) => this.key_(event));
      this.box.addEventListener("focusin", (event) => this.moved(event.target));
      this.box.addEventListener("pointerover", (event) => this.look(event.target));
      this.box.addEventListener("pointerleave", () => this.look(document.activeElement));
      this.box.addEventListener("click", (event) => { if (event.target.dataset.i) this.go(Number(event.target.dataset.i)); });
      this.look(null);
    }
    size(number, longest) { // as large as fits: of a row of the longest topic, or of a field of about eight to five
      const width = Math.max(this.element.clientWidth - 48, 240);
      const label = width > 640 ? 190 : 0;
      const fits = longest ? Math.floor((width - label) / longest) - 4 : Math.floor(Math.sqrt((width * width * 0.6) / number)) - 2;
      return Math.max(Math.min(fits, number <= 60 ? 40 : 28), longest ? 12 : 7);
    }
    cell(i, size) {
      const made = document.createElement("div");
      made.dataset.i = i;
      made.tabIndex = -1;
      made.setAttribute("role", "option");
      made.setAttribute("aria-selected", "false");
      if (size > 30) made.textContent = this.dir.cells[i][PARTITION];
      this.cells[i] = made;
      return made;
    }
    colour(indexes) {
      const cells = this.dir.cells;
      const cycle = this.cycle;
      for (const i of indexes) {
        const name = `cell ${classOf(cells[i], cycle)}`;
        if (this.cells[i].className !== name) this.cells[i].className = name;
        this.cells[i].setAttribute("aria-label", `${nameOf(cells[i])}: ${described(cells[i], cycle)}`);
      }
      if (cells.length) { this.showLegend(); if (this.lookedAt !== undefined && this.lookedAt !== null) this.look(this.cells[this.lookedAt]); }
    }
    showLegend() {
      const found = {};
      for (const cell of this.dir.cells) { const name = classOf(cell, this.cycle); found[name] = (found[name] ?? 0) + 1; }
      const key = JSON.stringify(found);
      if (key === this.legendKey) return;
      this.legendKey = key;
      const age = (n) => {
        const quarter = this.cycle / 4;
        return !quarter ? "sound" : n === 0 ? `sound, read within ${span(quarter)}` : `read ${span(n * quarter)} to ${span((n + 1) * quarter)} ago`;
      };
      const items = [];
      const order = ["damaged", "unreadable", "held", "suspect", "repairable", "late", "unverified", "a0", "a1", "a2", "a3"];
      for (const name of order) {
        const isAge = /^a\d$/.test(name);
        if (!found[name] && !(isAge && this.cycle && this.dir.cells.some((cell) => cell[VERDICT] === "sound"))) continue;
        const meaning = name === "late" ? "sound, read later than promised" : isAge ? age(Number(name[1])) : state.words.verdicts[name];
        items.push(make("li", "", make("span", `cell ${name}`), make("b", "", grouped(found[name] ?? 0)), make("span", "", meaning)));
      }
      this.legend.replaceChildren(...items);
      setText(this.title2, count(this.dir.cells.length, "partition"));
    }
    look(target) {
      const i = target && target.dataset && target.dataset.i !== undefined && this.box.contains(target) ? Number(target.dataset.i) : null;
      this.lookedAt = i;
      if (i === null) { this.looked.replaceChildren("Point at a partition, or move to it with the arrow keys, to read what is known of it."); return; }
      const cell = this.dir.cells[i];
      this.looked.replaceChildren(make("b", "name", nameOf(cell)), ` ${described(cell, this.cycle)}`);
    }
    moved(target) {
      const i = Number(target.dataset.i);
      this.cells[this.current].tabIndex = -1;
      this.cells[this.current].setAttribute("aria-selected", "false");
      this.current = i;
      target.tabIndex = 0;
      target.setAttribute("aria-selected", "true");
      this.look(target);
    }
    go(i) { if (i >= 0 && i < this.cells.length) this.cells[i].focus(); }
    key_(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const i = this.current;
      const steps = {
        ArrowRight: () => i + 1, ArrowLeft: () => i - 1, Home: () => 0, End: () => this.cells.length - 1,
        ArrowDown: () => this.vertical(1), ArrowUp: () => this.vertical(-1), n: () => this.problem(), N: () => this.problem(),
        PageDown: () => Math.min(i + 100, this.cells.length - 1), PageUp: () => Math.max(i - 100, 0),
      };
      if (event.key === "Enter") { this.toFinding(); event.preventDefault(); return; }
      if (!(event.key in steps)) return;
      event.preventDefault();
      this.go(steps[event.key]());
    }
    vertical(direction) { // the nearest cell of the next line, wherever lines break
      const from = this.cells[this.current].getBoundingClientRect();
      let best = this.current, line = null, nearest = Infinity;
      for (let i = this.current + direction; i >= 0 && i < this.cells.length; i += direction) {
        const at = this.cells[i].getBoundingClientRect();
        if (Math.abs(at.top - from.top) < 2) continue;
        if (line === null) line = at.top;
        if (Math.abs(at.top - line) >= 2) break;
        const distance = Math.abs(at.left - from.left);
        if (distance < nearest) { nearest = distance; best = i; }
      }
      return best;
    }
    problem() {
      const cells = this.dir.cells;
      for (let step = 1; step <= cells.length; step++) {
        const i = (this.current + step) % cells.length;
        const name = classOf(cells[i], this.cycle);
        if (cells[i][FINDINGS] || !["a0", "a1", "a2", "a3", "unverified"].includes(name)) return i;
      }
      return this.current;
    }
    toFinding() {
      const cell = this.dir.cells[this.current];
      const index = state.log_dirs[this.index].findings.findIndex((found) => found.topic === cell[TOPIC] && found.partition === cell[PARTITION]);
      if (index < 0) return;
      const target = document.getElementById(`finding-${this.index}-${index}`);
      if (target) { target.focus(); target.scrollIntoView({ block: "center" }); }
    }
  }

  // ---- findings ----
  const shown = new Map();
  function offsets(found) {
    if (found.first_offset === null) return null;
    if (found.last_offset === null) return `from ${found.first_offset} on`;
    return found.last_offset <= found.first_offset ? `${found.first_offset}` : `${found.first_offset} to ${found.last_offset}`;
  }
  function row(list, title, ...content) { list.append(make("dt", "", title), make("dd", "", ...content)); }
  function findingView(found) {
    const where = found.topic === null ? safe(found.path) : safe(`${found.topic}-${found.partition}`);
    const title = make("h3", "", make("span", "name", where), " ", make("span", "kind", safe(found.kind.replaceAll("_", " "))), " ",
      make("span", "chip", `${safe(found.severity)}, ${safe(found.verdict)}`));
    const list = make("dl", "");
    row(list, "What", safe(found.evidence));
    if (offsets(found) !== null) row(list, "Offsets", make("code", "", offsets(found)),
      found.records ? `, up to ${count(found.records, "record")} at stake` : "", found.next_good_offset === null ? "" : "; the next good one is ",
      found.next_good_offset === null ? "" : make("code", "", String(found.next_good_offset)));
    const place = found.position === null ? "" : `, byte ${found.position}${found.size === null ? "" : `, ${grouped(found.size)} bytes`}`;
    row(list, "Where", make("code", "", safe(found.path)), place);
    const seen = make("span", "");
    row(list, "Since", seen);
    const runbook = make("a", "", found.runbook.replaceAll("-", " "));
    runbook.href = `runbooks/${found.runbook}`;
    row(list, "Runbook", runbook);
    const item = make("li", `finding ${["damage", "blocking", "repairable", "note"].includes(found.severity) ? found.severity : ""}`, title, list);
    if (found.command) {
      const code = make("code", "", safe(found.command));
      const button = make("button", "", "Copy");
      button.type = "button";
      button.setAttribute("aria-label", `Copy the command for ${where}`);
      button.addEventListener("click", () => copy(code, button));
      item.append(make("div", "run", make("span", "", "Once the broker is stopped:"), code, button));
    }
    item.tabIndex = -1;
    return { item, seen };
  }
  async function copy(code, button) {
    try { await navigator.clipboard.writeText(code.textContent); button.textContent = "Copied"; }
    catch { getSelection().selectAllChildren(code); button.textContent = "Selected"; }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }
  function showFindings() {
    const items = [];
    const keep = new Set();
    let total = 0;
    state.log_dirs.forEach((dir, d) => {
      total += dir.findings_total;
      dir.findings.forEach((found, f) => {
        const key = `${d}/${found.id}/${JSON.stringify({ ...found, last_seen_ms: 0 })}`;
        const view = shown.get(key) ?? findingView(found);
        shown.set(key, view);
        keep.add(key);
        view.item.id = `finding-${d}-${f}`;
        setText(view.seen, `${ago(found.first_seen_ms)}, last seen ${ago(found.last_seen_ms)}`);
        items.push(view.item);
      });
    });
    for (const key of shown.keys()) if (!keep.has(key)) shown.delete(key);
    const list = byId("finding-list");
    if (items.length !== list.children.length || items.some((item, i) => list.children[i] !== item)) {
      const focused = document.activeElement;
      list.replaceChildren(...items);
      if (focused && list.contains(focused)) focused.focus({ preventScroll: true });
    }
    byId("findings").hidden = !items.length;
    setText(byId("findings-title"), count(total, "open finding"));
    byId("findings-more").hidden = total === items.length;
    setText(byId("findings-more"), `${count(total - items.length, "more", "more")}: logmend status --json lists all of them.`);
  }

  // ---- Kafka clients ----
  let clientsKey = "";
  function showClients() {
    const listeners = state.listeners ?? [];
    const key = JSON.stringify(listeners);
    byId("clients").hidden = !listeners.length;
    if (key === clientsKey) return;
    clientsKey = key;
    byId("client-list").replaceChildren(...listeners.map(listenerView));
  }
  function listenerView(one) {
    const facts = make("dl");
    const total = one.requests.reduce((sum, request) => sum + request.count, 0);
    row(facts, "address", safe(one.listen), one.reason && make("span", "late", `, not served: ${safe(one.reason)}`));
    row(facts, "connections", `${grouped(one.connections)}, ${grouped(one.accepted)} since the start`);
    row(facts, "requests", `${grouped(total)}${total ? ": " : ""}${one.requests.map(requestText).join(", ")}`);
    row(facts, "bytes", `${bytes(one.received_bytes)} received, ${bytes(one.sent_bytes)} sent`);
    row(facts, "flush", safe(one.flush));
    if (!one.lags.length) return make("div", "listener", facts);
    const head = make("tr", "", ...["group", "topic", "records behind"].map((title) => { const cell = make("th", "", title); cell.scope = "col"; return cell; }));
    const rows = one.lags.map((lag) => make("tr", "", make("td", "", safe(lag.group)), make("td", "", safe(lag.topic)), make("td", "number", grouped(lag.records))));
    const lags = make("table", "lags", make("caption", "", one.lags_total > one.lags.length ? `Consumer groups, the ${one.lags.length} that are furthest behind` : "Consumer groups"), make("thead", "", head), make("tbody", "", ...rows));
    return make("div", "listener", facts, make("div", "wide", lags));
  }
  function requestText(request) {
    const mean = request.count && request.seconds ? ` (${(request.seconds / request.count * 1000).toFixed(1)} ms)` : "";
    return `${grouped(request.count)} ${safe(request.kind)}${mean}`;
  }

  // ---- the rest ----
  let eventsKey = "";
  function showEvents() {
    const events = state.events.slice(0, 12);
    const key = JSON.stringify(events);
    byId("lately").hidden = !events.length;
    if (key === eventsKey) return;
    eventsKey = key;
    byId("event-list").replaceChildren(...events.map(([at, level, name, rest]) => {
      const time = make("time", "", clock(Date.parse(at)));
      time.dateTime = at;
      return make("li", "", time, make("span", level, safe(name.replaceAll("_", " "))), make("span", "", safe(rest)));
    }));
  }
  function showTop() {
    const { level, text } = state.verdict;
    byId("top").dataset.level = level;
    setText(byId("sentence"), `${safe(text)}.`);
    const title = `${{ bad: "✖ ", attention: "▲ ", working: "… ", good: "" }[level] ?? ""}${safe(text)}`;
    document.title = `${title.slice(0, 80)} – logmend`;
    setText(byId("about"), `· ${state.host ? `${safe(state.host)} · ` : ""}logmend ${safe(state.logmend)}, running for ${span((now() - state.started_ms) / 1000)}`);
  }
  function show(changedCells) {
    showTop();
    if (views.length !== state.log_dirs.length) {
      views = state.log_dirs.map((_, i) => new DirView(i));
      byId("dirs").replaceChildren(...views.map((view) => view.element));
    }
    views.forEach((view, i) => view.update(changedCells ? changedCells[i] : null));
    showFindings();
    showClients();
    showEvents();
    byId("main").setAttribute("aria-busy", "false");
    byId("main").dataset.ready = "true";
  }
  function take(full) {
    state = full;
    receivedAt = performance.now();
    show(null);
  }
  function merge(delta) {
    const cells = delta.log_dirs.map((change, i) => {
      const { cells: changed, ...fields } = change;
      Object.assign(state.log_dirs[i], fields);
      for (const [index, cell] of changed) state.log_dirs[i].cells[index] = cell;
      return changed.map(([index]) => index);
    });
    const { log_dirs: _, ...rest } = delta;
    Object.assign(state, rest);
    receivedAt = performance.now();
    show(cells);
  }

  // ---- the connection ----
  let source = null, lastFrame = performance.now(), wait = 1000, lostAt = null;
  function linked(status) {
    const link = byId("link");
    if (status === "live") lostAt = null; else if (lostAt === null && state !== null) lostAt = Date.now();
    link.dataset.link = status;
    setText(link, status === "live" ? "live" : lostAt === null ? "connecting" : `no connection since ${clock(lostAt)}: what is shown may be old; trying again`);
    document.body.dataset.stale = String(status !== "live" && state !== null);
  }
  function connect() {
    source?.close();
    lastFrame = performance.now();
    source = new EventSource("/events");
    const heard = (handle) => (event) => {
      lastFrame = performance.now();
      wait = 1000;
      handle(JSON.parse(event.data));
      linked("live");
    };
    source.addEventListener("full", heard(take));
    source.addEventListener("delta", heard((delta) => { if (state !== null) merge(delta); }));
    source.addEventListener("error", () => {
      linked(state === null ? "waiting" : "lost");
      if (source.readyState === EventSource.CLOSED) { setTimeout(connect, wait); wait = Math.min(wait * 2, 15000); }
    });
  }
  setInterval(() => { if (source.readyState !== EventSource.CLOSED && performance.now() - lastFrame > 20000) { linked("lost"); connect(); } }, 5000);
  setInterval(() => { if (state !== null) show(null); }, 60000); // ages grow though nothing changes
  connect();
})();
