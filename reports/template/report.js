"use strict";
/* Draws the report of this page from its JSON document, `trainyard.report/1`. Strings of the document
 * only ever become text nodes and attributes, never markup. */
(function () {
  const report = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("report");
  const { plan, prediction, comparison, run, timeline, network } = report;
  const measured = comparison && comparison.measured;

  /* ---- Elements ------------------------------------------------------------------------------- */

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "tip") node.tip = value;
      else if (value !== null && value !== undefined) node.setAttribute(name, value);
    }
    for (const child of children.flat(9)) if (child || child === 0) node.append(child);
    return node;
  }
  function el(name, attributes, ...children) {
    return fill(document.createElement(name), attributes, children);
  }
  function svg(name, attributes, ...children) {
    return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
  }
  const note = (...children) => el("p", { class: "faint" }, ...children);
  const strong = (text) => el("strong", null, text);
  const sum = (numbers) => numbers.reduce((total, n) => total + (n || 0), 0);
  const isNumber = (value) => typeof value === "number" && isFinite(value);
  const plural = (count, noun) => count + " " + noun + (count === 1 ? "" : "s");

  /* ---- Figures -------------------------------------------------------------------------------- */

  function digits(value) { return value === 0 ? "0" : String(Number(value.toPrecision(3))); }
  function scaled(value, base, units, gap) {
    let power = 0;
    while (Math.abs(value) >= base * 0.9995 && power < units.length - 1) { value /= base; power++; }
    return digits(value) + (units[power] ? (gap === undefined ? " " : gap) + units[power] : "");
  }
  const grouped = (value) => String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
  function timeUnit(size) {
    return size < 1e-6 ? [1e-9, "ns"] : size < 1e-3 ? [1e-6, "µs"] : size < 1 ? [1e-3, "ms"] : size < 120 ? [1, "s"]
      : size < 7200 ? [60, "min"] : size < 172800 ? [3600, "h"] : [86400, "d"];
  }
  function seconds(value) {
    const [unit, name] = timeUnit(Math.abs(value));
    return value === 0 ? "0 s" : digits(value / unit) + " " + name;
  }
  const formats = {
    s: seconds,
    bytes: (v) => scaled(v, 1000, ["B", "kB", "MB", "GB", "TB", "PB"]),
    memory: (v) => scaled(v, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]),
    count: (v) => scaled(v, 1000, ["", "k", "M", "G", "T"], ""),
    number: (v) => (isNumber(v) ? String(v) : "–"),
    share: (v) => (v * 100).toFixed(1) + " %",
    usd: (v) => "$" + (v >= 100 ? grouped(v) : v.toFixed(v >= 1 ? 2 : 4)),
    energy: (v) => scaled(v / 3600, 1000, ["Wh", "kWh", "MWh", "GWh"]),
    power: (v) => scaled(v, 1000, ["W", "kW", "MW", "GW"]),
    factor: (v) => "x " + digits(v),
    rate: (v) => scaled(v, 1000, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]),
    days: (v) => (v >= 1000 ? grouped(v) : digits(v)),
    change: (v) => (v >= 0 ? "+" : "") + (v * 100).toFixed(1) + " %",
    loss: (v) => v.toFixed(4),
  };
  const show = (unit, value) => (isNumber(value) ? formats[unit](value) : "–");

  /* ---- Sections and tables -------------------------------------------------------------------- */

  const sections = [], missing = [];
  function section(id, title, ...children) {
    sections.push([id, title]);
    return el("section", { id }, el("h2", null, title), children);
  }
  function lacking(title, filledBy) { missing.push([title, filledBy]); }
  function details(summary, ...children) { return el("details", null, el("summary", null, summary), children); }

  /* Headings of text columns begin with "<". */
  function table(headings, rows) {
    const isText = headings.map((h) => h[0] === "<");
    const cell = (value, i) => {
      const text = value && value.nodeType ? value.textContent : String(value);
      const kind = !isText[i] ? null : text.length > 48 ? "why" : "text";
      return el("td", { class: value && value.isOver ? "over" : kind }, value);
    };
    return el("div", { class: "scroll", tabindex: 0 }, el("table", null,
      el("thead", null, el("tr", null, headings.map((h, i) => el("th", { class: isText[i] ? "text" : null }, isText[i] ? h.slice(1) : h)))),
      el("tbody", null, rows.map((row) => el("tr", null, row.map(cell))))));
  }
  /* The first `most` rows, and how many are left out. */
  function cutTable(headings, rows, most, rest) {
    return [table(headings, rows.slice(0, most)),
      rows.length > most && note("And " + (rows.length - most) + " more" + (rest || "") + ".")];
  }
  const cards = (pairs) => el("ul", { class: "cards" }, pairs.filter((p) => p && p[1] !== "–").map(([label, value]) => el("li", null, el("span", { class: "faint" }, label), el("b", null, value))));

  /* ---- Charts --------------------------------------------------------------------------------- */

  /* Okabe and Ito's palette, with a ninth and tenth of Tol's: color-blind readers can distinguish them. */
  const palette = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a800", "#8c8c8c", "#aa4499", "#44aa99"];
  const charts = [];

  function legend(pairs, words) {
    return el("ul", { class: "legend" }, pairs.map(([name, colour]) => el("li", null,
      svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { width: 12, height: 12, fill: colour })), name)),
    (words || []).map((word) => el("li", { class: "faint" }, word)));
  }
  /* A picture with a caption, and its figures below. @param draw (width) => svg */
  function chart(id, caption, alternative, draw, figures, keys, tools) {
    const plot = el("div", { class: "plot", "data-chart": id, role: "img", tabindex: 0, "aria-label": alternative });
    const figure = el("figure", { class: "chart", id: "chart-" + id }, el("figcaption", null, caption), tools, keys, plot,
      details("Figures of this chart", figures));
    charts.push({ plot, draw, figure });
    return figure;
  }
  /* A chart that cannot be drawn prints a note and opens its table. */
  function drawChart(entry) {
    try {
      entry.plot.replaceChildren(entry.draw(Math.max(240, entry.plot.clientWidth - 2), entry.plot));
    } catch (error) {
      entry.plot.replaceWith(el("p", { class: "over undrawn" }, "This chart could not be drawn (" + error.message + "). Its figures are in the table below."));
      entry.figure.querySelector("details").open = true;
      charts.splice(charts.indexOf(entry), 1);
    }
  }

  function roundStep(span, count, unit) {
    if (unit === "memory") return Math.pow(2, Math.ceil(Math.log2(span / count)));
    const base = unit !== "s" ? 1 : span > 172800 ? 86400 : span > 7200 ? 3600 : span > 120 ? 60 : 1;
    const raw = span / count / base, power = Math.pow(10, Math.floor(Math.log10(raw)));
    return base * power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
  }
  /* Times of one axis have one unit, and enough decimals to distinguish neighbors. */
  function tickText(axis, step, value) {
    if (axis.unit !== "s" || axis.log) return formats[axis.unit](value);
    const [unit, name] = timeUnit(axis.max);
    return Number((value / unit).toFixed(Math.max(0, Math.ceil(-Math.log10(step / unit * 0.999))))) + " " + name;
  }
  /* A scale of one direction: { at(value), ticks: [[place, label]] }. An axis has `categories`, or min and max. */
  function scale(axis, from, to, count) {
    if (axis.categories) {
      const size = (to - from) / axis.categories.length, every = Math.ceil(axis.categories.length / Math.max(1, count));
      return { size, at: (i) => from + size * (i + 0.5),
        ticks: axis.categories.map((c, i) => [from + size * (i + 0.5), c]).filter((t, i) => i % every === 0) };
    }
    const put = axis.log ? Math.log10 : (v) => v;
    const low = put(axis.min), span = put(axis.max) - low || 1;
    const at = (v) => from + (to - from) * (put(v) - low) / span, ticks = [];
    const step = axis.log ? Math.max(1, Math.ceil(span / count)) : roundStep(span, count, axis.unit);
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= low + span * 1.000001; v += step) {
      const value = axis.log ? Math.pow(10, v) : Math.abs(v) < step * 1e-9 ? 0 : v;
      ticks.push([at(value), tickText(axis, step, value)]);
    }
    return { at, ticks };
  }
  const shorten = (text, length) => (text.length > length ? text.slice(0, Math.max(1, length - 1)) + "…" : text);
  /* The frame of all charts with axes: scales x and y, ticks, grid lines and names of the axes. */
  function frame(width, height, xAxis, yAxis, more) {
    const left = yAxis.categories ? Math.min(width * 0.34, 14 + 6.2 * Math.max(...yAxis.categories.map((c) => c.length))) : 66;
    const area = { left, right: width - 14, top: (more && more.top) || 10, bottom: height - (xAxis.name ? 40 : 24) };
    const x = scale(xAxis, area.left, area.right, Math.max(2, Math.floor((area.right - left) / 85)));
    const y = yAxis.categories ? scale(yAxis, area.top, area.bottom, height / 11) : scale(yAxis, area.bottom, area.top, 5);
    const root = svg("svg", { width, height, viewBox: "0 0 " + width + " " + height, "aria-hidden": "true" });
    for (const [place, label] of x.ticks)
      root.append(svg("line", { class: "axis", x1: place, x2: place, y1: area.top, y2: area.bottom }),
        svg("text", { class: "tick", x: place, y: area.bottom + 15, "text-anchor": place > area.right - 20 ? "end" : "middle" }, shorten(label, 14)));
    for (const [place, label] of y.ticks)
      root.append(yAxis.categories ? "" : svg("line", { class: "axis", x1: area.left, x2: area.right, y1: place, y2: place }),
        svg("text", { class: "tick", x: area.left - 6, y: place + 4, "text-anchor": "end" }, shorten(label, Math.floor((left - 8) / 6))));
    if (xAxis.name) root.append(svg("text", { class: "tick", x: (area.left + area.right) / 2, y: height - 6, "text-anchor": "middle" }, xAxis.name));
    if (yAxis.name) root.append(svg("text", { class: "tick", x: 12, y: (area.top + area.bottom) / 2, "text-anchor": "middle",
      transform: "rotate(-90 12 " + (area.top + area.bottom) / 2 + ")" }, yAxis.name));
    return { root, x, y, area };
  }
  let patterns = 0;
  /* Hatching distinguishes stacked parts without color. */
  function hatching(root) {
    const id = "hatch-" + patterns++;
    root.prepend(svg("defs", null, svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { width: 2, height: 6, fill: "rgba(255,255,255,.4)" }))));
    return "url(#" + id + ")";
  }
  const colourOf = (s, i) => s.colour || palette[i % palette.length];

  /* Horizontal bars over categories, stacked or next to each other, with a limit as a line. */
  function bars(o) {
    const used = o.series.filter((s) => s.values.some((v) => v > 0));
    const longest = Math.max(...o.categories.map((c, i) => (o.stacked ? sum(used.map((s) => s.values[i])) : Math.max(0, ...used.map((s) => s.values[i] || 0)))), 0);
    const hasLine = o.limit > 0 && o.limit <= 8 * longest;
    const draw = (width) => {
      const rows = o.categories.length * (o.stacked ? 1 : used.length);
      const max = Math.max(longest, hasLine ? o.limit * 1.02 : 0) || 1;
      const f = frame(width, Math.min(900, 60 + rows * (rows > 24 ? 16 : 28)), { min: 0, max, unit: o.unit, name: o.limit && !hasLine ? o.limitName + ": " + formats[o.unit](o.limit) : o.yName },
        { categories: o.categories }, { top: hasLine ? 24 : 10 });
      const hatch = hatching(f.root), thick = Math.min(26, f.y.size * 0.8) / (o.stacked ? 1 : used.length);
      o.categories.forEach((category, i) => {
        let sofar = 0;
        used.forEach((s, k) => {
          const value = s.values[i] || 0, from = f.x.at(o.stacked ? sofar : 0), to = f.x.at((o.stacked ? sofar : 0) + value);
          const place = { x: from, width: Math.max(0, to - from), height: Math.max(1, thick - 1),
            y: f.y.at(i) - (o.stacked ? thick / 2 : thick * (used.length / 2 - k)) };
          const tip = [category, s.name + ": " + formats[o.unit](value)];
          f.root.append(svg("rect", { ...place, fill: colourOf(s, o.series.indexOf(s)), tip }));
          if (o.stacked && k % 2) f.root.append(svg("rect", { ...place, fill: hatch, tip }));
          sofar += value;
        });
      });
      if (hasLine)
        f.root.append(svg("line", { class: "limit", x1: f.x.at(o.limit), x2: f.x.at(o.limit), y1: f.area.top - 4, y2: f.area.bottom }),
          svg("text", { x: f.x.at(o.limit) - 4, y: 14, "text-anchor": "end" }, o.limitName));
      return f.root;
    };
    return chart(o.id, o.caption, o.alternative, draw, [plotTable(o), o.limit > 0 && note(o.limitName + ": " + formats[o.unit](o.limit) + ".")],
      used.length > 1 && legend(used.map((s) => [s.name, colourOf(s, o.series.indexOf(s))])));
  }

  function mark(kind, x, y, attributes) {
    const r = 3.5;
    if (kind === 0) return svg("circle", { cx: x, cy: y, r, ...attributes });
    if (kind === 1) return svg("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, ...attributes });
    const points = kind === 2 ? [[0, -r - 1], [r + 1, r], [-r - 1, r]] : [[0, -r - 1], [r + 1, 0], [0, r + 1], [-r - 1, 0]];
    return svg("path", { d: "M" + points.map(([dx, dy]) => (x + dx) + " " + (y + dy)).join("L") + "Z", ...attributes });
  }
  /* Lines over numbers or categories, with bands and marks; a missing value interrupts a line. */
  function lines(o) {
    const count = (o.categories || o.x).length, all = o.series.flatMap((s) => [...s.values, ...(s.high || [])]).filter(isNumber);
    const draw = (width) => {
      const positive = all.filter((v) => v > 0);
      const yAxis = { min: o.logY ? Math.min(...positive) : Math.min(0, ...all), max: Math.max(...all, o.logY ? 0 : 1e-300), log: o.logY, unit: o.unit, name: o.yName };
      const xAxis = o.categories ? { categories: o.categories, name: o.xName } : { min: o.x[0], max: o.x[count - 1], log: o.logX, unit: o.xUnit, name: o.xName };
      const f = frame(width, 320, xAxis, yAxis), at = (i) => f.x.at(o.categories ? i : o.x[i]);
      o.series.forEach((s, k) => {
        const colour = colourOf(s, k);
        if (s.low) {
          const known = s.values.map((v, i) => i).filter((i) => isNumber(s.low[i]));
          f.root.append(svg("polygon", { fill: colour, opacity: 0.18,
            points: known.map((i) => at(i) + "," + f.y.at(s.high[i])).concat(known.reverse().map((i) => at(i) + "," + f.y.at(s.low[i]))).join(" ") }));
        }
        let path = "", isDrawing = false;
        s.values.forEach((v, i) => {
          const isShown = isNumber(v) && (!o.logY || v > 0);
          if (isShown) path += (isDrawing ? "L" : "M") + at(i).toFixed(1) + " " + f.y.at(v).toFixed(1);
          if (isShown && count <= 60) f.root.append(mark(k % 4, at(i), f.y.at(v), { fill: colour }));
          isDrawing = isShown;
        });
        f.root.append(svg("path", { d: path, class: "curve", stroke: colour, "stroke-dasharray": s.dashed ? "6 4" : null }));
      });
      if (o.limit > 0 && o.limit >= xAxis.min && o.limit <= xAxis.max)
        f.root.append(svg("line", { class: "limit", x1: f.x.at(o.limit), x2: f.x.at(o.limit), y1: f.area.top, y2: f.area.bottom }),
          svg("text", { x: f.x.at(o.limit) - 4, y: f.area.top + 12, "text-anchor": "end" }, o.limitName));
      for (let i = 0; i < count; i++) {
        const from = i > 0 ? (at(i - 1) + at(i)) / 2 : f.area.left, to = i < count - 1 ? (at(i) + at(i + 1)) / 2 : f.area.right;
        const head = o.categories ? o.xName + " " + o.categories[i] : o.xName + " " + show(o.xUnit, o.x[i]);
        f.root.append(svg("rect", { x: from, width: Math.max(0, to - from), y: f.area.top, height: f.area.bottom - f.area.top, fill: "transparent",
          tip: [head].concat(o.series.map((s) => s.name + ": " + (isNumber(s.values[i]) ? show(o.unit, s.values[i]) : "none"))) }));
      }
      return f.root;
    };
    return chart(o.id, o.caption, o.alternative, draw, [plotTable(o), o.limit > 0 && note(o.limitName + ": " + formats[o.xUnit](o.limit) + ".")],
      legend(o.series.map((s, k) => [s.name, colourOf(s, k)])));
  }
  const MOST_PLOT_ROWS = 200;
  function plotTable(o) {
    const names = o.categories || o.x.map((v) => show(o.xUnit, v)), stride = Math.floor(names.length / (MOST_PLOT_ROWS + 1)) + 1;
    const rows = names.map((name, i) => [name].concat(o.series.flatMap((s) =>
      [show(o.unit, s.values[i])].concat(s.low ? [show(o.unit, s.low[i]) + " to " + show(o.unit, s.high[i])] : []))));
    return [table(["<" + o.xName].concat(o.series.flatMap((s) => (s.low ? [s.name, "range"] : [s.name]))), rows.filter((r, i) => i % stride === 0)),
      stride > 1 && note("One row of " + stride + " is shown.")];
  }

  /* ---- What to do next ------------------------------------------------------------------------ */

  const parts = [
    ["compute", "compute_share", "#0072b2"],
    ["exposed gradient communication", "exposed_collective_share", "#009e73",
      "overlap it with the backward pass, compress gradients (--fix compression=...), or use fewer data-parallel replicas (--fix dp=N)"],
    ["exposed send/recv", "exposed_transfer_share", "#cc79a7", "use fewer pipeline stages (--fix pp=N), or a faster network between them"],
    ["pipeline bubble", "bubble_share", "#8c8c8c",
      "use more micro-batches (--global-batch), more virtual stages (--fix vpp=N), or fewer pipeline stages (--fix pp=N)"],
    ["input", "input_share", "#e69f00", "read samples with more cores or from faster storage (--input)"],
  ];
  const stageParts = [["forward", "#0072b2"], ["backward", "#d55e00"], ["recompute", "#56b4e9"], ["update", "#e69f00"], ["waiting for gradients", "#009e73"],
    ["waiting for a neighbor", "#cc79a7"], ["waiting for input", "#b5a800"], ["idle", "#8c8c8c"]];
  const RECOMPUTE = 2;

  function nextSection() {
    const failed = documentOf("trainyard.infeasible/1"), summary = measured || prediction;
    if (failed && failed.change)
      return section("next", "What to do next", el("p", null, "Change: ", strong(failed.change.words || failed.change.fix || ""),
        isNumber(failed.change.step_time_s) && ": step time " + seconds(failed.change.step_time_s), "."));
    if (!summary || !(summary.step_time_s > 0)) return null;
    const step = summary.step_time_s;
    const rows = parts.slice(1).map(([name, key, , change]) => [name, summary[key] * step, change]);
    if (timeline) {
      const shown = timeline.stage_parts.filter((s) => !timeline.is_measured || / measured$/.test(s.name));
      rows.push(["recomputation", sum(shown.map((s) => s.seconds[RECOMPUTE])) / (shown.length || 1), "recompute less (--fix recompute=none), if the activations fit in memory"]);
    }
    const ranked = rows.filter((r) => r[1] >= 0.001 * step).sort((a, b) => b[1] - a[1]);
    return section("next", "What to do next",
      ranked.length === 0
        ? el("p", null, "Computation takes all of the step: faster devices, a lower precision or fewer FLOPs make it shorter.")
        : [note("Changes ranked by the seconds per step that they can save at most, " + (measured ? "measured" : "predicted") + ", of " + seconds(step) + "."),
          table(["<part of the step", "saves at most", "of the step", "<change"], ranked.map(([name, s, change]) => [name, seconds(s), formats.share(s / step), change]))],
      plan.uneven.map((text) => el("p", null, text)));
  }

  /* ---- The answer ----------------------------------------------------------------------------- */

  function documentsOf(schema) { return report.documents.filter((d) => d.schema === schema); }
  function documentOf(schema) {
    const found = documentsOf(schema)[0];
    return found ? found.content : undefined;
  }
  /* Cost of a cluster: { usd(seconds), energy(seconds) }, NaN if not known. */
  function billOf(score) {
    const hour = score && isNumber(score.price_usd_per_hour) ? score.price_usd_per_hour : NaN;
    const power = score && score.power_w && isNumber(score.power_w.expected) ? score.power_w.expected : NaN;
    return { hour, power, usd: (s) => s / 3600 * hour, energy: (s) => s * power };
  }
  const bill = billOf(documentOf("trainyard.score/1"));
  const purposes = ["parameters", "gradients", "optimizer states", "activations", "communication buffers", "compression", "workspace"];
  function fullest(p) {
    return p.stages.map((s) => s.bytes).filter(Boolean).reduce((most, b) => (sum(b) > sum(most) ? b : most), []);
  }

  function certaintyCards(step) {
    const words = { measured: "measured", calibrated: "calibrated", datasheet: "data sheet" };
    const interval = plan.interval;
    return [
      interval && [Math.round(100 * interval.coverage) + " % interval of the step time", seconds(interval.low_s) + " to " + seconds(interval.high_s)],
      interval && Math.abs(interval.expected_s / step - 1) > 0.03 && ["expected step time", seconds(interval.expected_s)],
      plan.judged ? ["mean error", digits(100 * plan.judged.mean_error) + " % on " + plan.judged.rows + " held-out runs"]
        : ["provenance", plan.is_fitted ? "fitted to published runs" : words[plan.provenance] || plan.provenance],
    ];
  }
  function nearestRun() {
    const near = plan.nearest && plan.nearest[0];
    return near && note("Nearest measured run: " + near.model + " on " + near.devices + " " + near.device + ", " + near.precision + ", " + near.framework + ": " + seconds(near.step_s) + " per step (" + near.source + ").");
  }
  function answerCards() {
    const s = prediction, memory = fullest(plan), noun = plan.device_noun, last = run && run.evaluations[run.evaluations.length - 1];
    const work = s.tokens_per_s > 0 ? ["billion tokens", 1e9 / s.tokens_per_s] : ["million samples", 1e6 / s.samples_per_s];
    return cards([
      ["predicted step time", seconds(s.step_time_s)],
      measured && ["measured step time", seconds(measured.step_time_s)],
      measured && ["prediction error" + (report.busy ? ", machine busy" : ""), formats.change(comparison.step_time_error)],
      measured ? ["measured samples/s", formats.count(measured.samples_per_s)] : ["predicted samples/s", formats.count(s.samples_per_s)],
      !measured && s.tokens_per_s > 0 && ["predicted tokens/s", formats.count(s.tokens_per_s)],
      s.mfu > 0 && ["MFU", formats.share(s.mfu)],
      s.tflops_per_device > 0 && ["TFLOP/s per " + noun, digits(s.tflops_per_device)],
      s.tokens_per_s_per_device > 0 && ["tokens/s per " + noun, formats.count(s.tokens_per_s_per_device)],
      memory.length > 0 && ["memory of the fullest device", formats.memory(sum(memory)) + (plan.usable_memory_bytes > 0 ? " of " + formats.memory(plan.usable_memory_bytes) : "")],
      plan.deployment && ["deployed as", plan.deployment.variant + ", " + formats.bytes(plan.deployment.bytes)],
      plan.deployment && run && run.variant && last && ["test accuracy as " + run.variant, formats.share(last[4]) + " of " + formats.share(last[2])],
      ["devices", plan.devices + (plan.servers > 0 ? ", and " + plural(plan.servers, "server") : " in " + plural(plan.stage_count, "stage"))],
      ...certaintyCards(s.step_time_s),
      ["cost per hour", show("usd", bill.hour)],
      ["cost per " + work[0], show("usd", bill.usd(work[1]))],
      ["power", show("power", bill.power)],
      ["energy per " + work[0], show("energy", bill.energy(work[1]))],
    ]);
  }
  function planAnswer() {
    const s = prediction, isPredicted = s.step_time_s > 0;
    const head = el("p", { class: "verdict" }, "Train ", strong(plan.workload), " on ", strong(plan.cluster), " with ", strong(plan.strategy));
    if (!isPredicted) return [fill(head, null, [". Nothing was predicted."])];
    fill(head, null, [": " + seconds(s.step_time_s) + " per step, " + formats.count(s.samples_per_s) + " samples/s predicted",
      measured && ", " + seconds(measured.step_time_s) + " measured (" + formats.change(comparison.step_time_error) + ")",
      ". Bottleneck: " + (measured || s).limited_by,
      report.busy && [". ", strong("The machine"), " " + report.busy], "."]);
    return [head, answerCards(), nearestRun()];
  }
  function answerSection() {
    const phases = documentOf("trainyard.phased-plan/1"), failed = documentOf("trainyard.infeasible/1"), asked = documentsOf("trainyard.whatif/1")[0];
    let answer = el("p", { class: "verdict" }, "No plan is part of this report.");
    if (plan) answer = planAnswer();
    else if (phases) answer = phasesAnswer(phases);
    else if (failed)
      answer = [asked && whatifAnswer(readWhatif(asked)), el("p", { class: "verdict over" }, strong("No plan fits."), " ", failed.workload, " on ", failed.cluster, ": ", failed.reason, ".")];
    else if (asked) answer = whatifAnswer(readWhatif(asked));
    return section("answer", "Answer", answer);
  }

  /* ---- Two plans ------------------------------------------------------------------------------ */

  const parallelismOf = (p) => [["TP", p.tensor_parallel], ["CP", p.context_parallel], ["EP", p.expert_parallel]].filter((l) => l[1] > 1).map((l) => l.join(" "))
    .concat(p.sequence_parallel ? ["sequence parallel"] : [], p.table_shard ? ["tables by " + p.table_shard] : []).join(", ") || "none";
  const choices = [
    ["workload", (p) => p.workload], ["cluster", (p) => p.cluster], ["devices", (p) => p.devices], ["framework", (p) => p.framework || "–"],
    ["strategy", (p) => p.strategy], ["pipeline stages", (p) => p.stage_count + (p.interleave > 1 ? ", " + p.interleave + " per device" : "")],
    ["schedule", (p) => (p.stage_count > 1 ? p.schedule : "no pipeline")],
    ["replicas per stage", (p) => (new Set(p.replicas).size === 1 ? p.replicas[0] : p.replicas.join("+"))],
    ["parallelism inside a replica", parallelismOf], ["ZeRO", (p) => p.zero], ["recomputation", (p) => p.stages[0].recompute],
    ["global batch size", (p) => p.global_batch + " in " + p.micro_batches], ["precision", (p) => p.precision],
    ["gradient buckets, compression", (p) => p.buckets + ", " + (p.compression || "none")],
  ];
  function versusSection() {
    const other = report.other;
    if (!plan || !other) return null;
    const files = report.files.filter((f) => f.schema === "trainyard.plan/1");
    const sides = [{ plan, prediction, bill, path: files.length ? files[0].path : "the first plan" },
      { plan: other.plan, prediction: other.prediction, path: other.path, bill: billOf(other.score) }];
    const [a, b] = sides.map((s) => s.prediction), memory = sides.map((s) => fullest(s.plan)), names = ["A", "B"];
    const names_ = sides.map((s, i) => el("p", null, strong(names[i]), " is ", s.path + ": " + s.plan.workload + " on " + s.plan.cluster + ", " + s.plan.strategy + "."));
    const configuration = table(["<configuration", "<A", "<B", "<B compared with A"], choices.map(([name, of]) => {
      const [left, right] = sides.map((s) => String(of(s.plan)));
      return [name, left, right, left === right ? "the same" : "differs"];
    }));
    if (!(a.step_time_s > 0) || !(b.step_time_s > 0))
      return section("versus", "Two plans compared", names_, note("At least one plan has no prediction: only the configurations can be compared."), configuration);
    const figures = (heading, rows) => table(["<" + heading, "A", "B", "B compared with A"], rows.filter((r) => isNumber(r[2]) || isNumber(r[3])).map(([name, unit, x, y]) =>
      [name, show(unit, x), show(unit, y), !(x > 0) || !isNumber(y) ? "–" : y >= 3 * x ? formats.factor(y / x) : formats.change(y / x - 1)]));
    const stacked = (id, caption, unit, yName, rows) => bars({ id, caption, alternative: "Two stacked bars; the table has the figures", xName: "plan", categories: names,
      unit, yName, stacked: true, series: rows.map(([name, values, colour]) => ({ name, values, colour })) });
    const ratio = b.samples_per_s / a.samples_per_s, best = ratio > 1 ? ["B", "A"] : ["A", "B"];
    const million = sides.map((s) => 1e6 / s.prediction.samples_per_s), usd = sides.map((s, i) => s.bill.usd(million[i]));
    const known = (v) => (v > 0 ? v : NaN);
    return section("versus", "Two plans compared", names_,
      el("p", { class: "verdict" }, "A takes " + seconds(a.step_time_s) + " per step, B " + seconds(b.step_time_s) + ". ",
        Math.abs(ratio - 1) < 0.0005 ? "Both train as many samples per second."
          : [strong(best[0] + " trains " + ((Math.max(ratio, 1 / ratio) - 1) * 100).toFixed(1) + " % more samples per second"), " than " + best[1] + "."],
        usd.every(isNumber) && " A million samples cost " + formats.usd(usd[0]) + " with A, " + formats.usd(usd[1]) + " with B."),
      plan.workload_digest !== other.plan.workload_digest && note("The plans are of different workloads: a sample is not the same work."),
      plan.global_batch !== other.plan.global_batch && note("The plans have different global batch sizes: a step is not the same work."),
      figures("predicted step", [["step time", "s", a.step_time_s, b.step_time_s], ...parts.map(([name, key]) => [name, "s", a[key] * a.step_time_s, b[key] * b.step_time_s]),
        ["samples/s", "count", a.samples_per_s, b.samples_per_s], ["tokens/s", "count", known(a.tokens_per_s), known(b.tokens_per_s)]]),
      stacked("versus-step", "Step time breakdown of each plan", "s", "seconds per step", parts.map(([name, key, colour]) => [name, [a[key] * a.step_time_s, b[key] * b.step_time_s], colour])),
      configuration,
      figures("memory of the fullest device", [["total", "memory", known(sum(memory[0])), known(sum(memory[1]))],
        ["usable", "memory", known(plan.usable_memory_bytes), known(other.plan.usable_memory_bytes)], ...purposes.map((name, i) => [name, "memory", memory[0][i], memory[1][i]])]),
      memory.every((m) => m.length) && stacked("versus-memory", "Memory of the fullest device of each plan", "memory", "bytes per device", purposes.map((name, i) => [name, [memory[0][i], memory[1][i]]])),
      sides.every((s) => !isNumber(s.bill.hour) && !isNumber(s.bill.power)) ? note("No price and no power of these devices is known.")
        : figures("cost and energy", [["cost per hour", "usd", ...sides.map((s) => s.bill.hour)], ["cost per million samples", "usd", ...usd],
          ["power", "power", ...sides.map((s) => s.bill.power)], ["energy per million samples", "energy", ...sides.map((s, i) => s.bill.energy(million[i]))]]),
      note("The rest of this report is about A."));
  }

  /* ---- The step, predicted and measured ------------------------------------------------------- */

  function breakdownSection() {
    if (!prediction || !(prediction.step_time_s > 0)) return lacking("Step time breakdown", "a plan with a prediction");
    const shown = [["predicted", prediction], measured && ["measured", measured]].filter(Boolean);
    return section("breakdown", "Step time breakdown",
      bars({ id: "breakdown", caption: "Parts of the step, averaged over stage replicas", alternative: "Stacked bars of the parts of a step; the table has the figures", xName: "step",
        categories: shown.map((s) => s[0]), unit: "s", yName: "seconds per step", stacked: true,
        series: parts.map(([name, key, colour]) => ({ name, colour, values: shown.map((s) => s[1][key] * s[1].step_time_s) })) }),
      table(["<part of the step"].concat(shown.map((s) => s[0])), parts.map(([name, key]) => [name].concat(shown.map((s) => formats.share(s[1][key]))))));
  }
  function errorsSection() {
    if (!comparison) return lacking("Predicted and measured operations", "a run of the plan: trainyard run PLAN -o RUN");
    return section("errors", "Predicted and measured operations",
      note("Medians over stage replicas and recorded steps. Waiting for a partner is not counted."),
      table(["stage", "<operation", "per step", "predicted", "measured", "error"], comparison.operations.map((o) => {
        const error = el("span", null, o.measured_s > 0 ? formats.change(o.error) : "–");
        error.isOver = o.measured_s > 0 && Math.abs(o.error) > 0.1;
        return [o.stage, o.operation, Math.round(o.per_step), seconds(o.predicted_s), seconds(o.measured_s), error];
      })));
  }
  function stagesSection() {
    if (!timeline) return lacking("Time per stage, timeline, critical path", "a plan, which is simulated for it");
    return section("stages", "Time per stage", bars({ id: "stages", caption: "Seconds of one step of one stage replica per bar",
      alternative: "Stacked bars, one per stage or stage replica: computation, and waiting by cause", xName: "stage replica", categories: timeline.stage_parts.map((s) => s.name), unit: "s",
      yName: "seconds per step", stacked: true, series: stageParts.map(([name, colour], i) => ({ name, colour, values: timeline.stage_parts.map((s) => s.seconds[i]) })) }));
  }

  /* Colors of the operations, in the program's order: load, forward, recompute, ... */
  const operationColours = { load: "#8c8c8c", forward: "#0072b2", recompute: "#56b4e9", backward: "#d55e00", send: "#cc79a7", receive: "#cc79a7", encode: "#b5a800",
    collective: "#009e73", decode: "#b5a800", update: "#e69f00", backward_input: "#d55e00", gather: "#44aa99", backward_weight: "#aa4499" };
  const [ROW, MEASURED, OPERATION, NAME, MICRO, START, READY, END, CRITICAL] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
  const MOST_INSTRUCTIONS = 600;

  function instructionTable() {
    const items = timeline.items.slice().sort((a, b) => a[ROW] - b[ROW] || a[START] - b[START] || a[MEASURED] - b[MEASURED]);
    return cutTable(["<stage replica and stream", "<instruction", "micro-batch", "<by", "start", "end", "waited"], items.map((i) => [timeline.rows[i[ROW]], timeline.names[i[NAME]], i[MICRO] < 0 ? "–" : i[MICRO],
      i[MEASURED] ? "measured" : "predicted", seconds(i[START] / 1e6), seconds(i[END] / 1e6), seconds((i[READY] - i[START]) / 1e6)]), MOST_INSTRUCTIONS, ": trainyard simulate --trace FILE writes all");
  }
  /* Instructions over time; the visible part of the step is [from, to]. */
  function timelineChart() {
    const length = timeline.length_us, view = { from: 0, to: length }, half = timeline.is_measured ? 2 : 1;
    let entry = null;
    function move(from, to) {
      const width = Math.min(length, Math.max(length / 1e5, to - from));
      view.from = Math.min(Math.max(0, from), length - width);
      view.to = view.from + width;
      drawChart(entry);
    }
    const zoom = (factor) => { const middle = (view.from + view.to) / 2, width = (view.to - view.from) * factor; move(middle - width / 2, middle + width / 2); };
    const tipOf = (item) => [(timeline.is_measured ? (item[MEASURED] ? "measured: " : "predicted: ") : "") + timeline.names[item[NAME]] + (item[MICRO] >= 0 ? ", micro-batch " + item[MICRO] : ""),
      "stage replica " + timeline.rows[item[ROW]], seconds((item[END] - item[READY]) / 1e6) + " from " + seconds(item[READY] / 1e6) + " to " + seconds(item[END] / 1e6),
      item[READY] > item[START] && "waited " + seconds((item[READY] - item[START]) / 1e6) + " before", item[CRITICAL] && "on the critical path", "click to zoom to it"].filter(Boolean);
    const draw = (width, plot) => {
      const height = Math.min(1100, Math.max(200, timeline.rows.length * 13 * half + 50));
      const f = frame(width, height, { min: view.from / 1e6, max: view.to / 1e6, unit: "s" }, { categories: timeline.rows });
      const bar = f.y.size * 0.84 / half, x = (us) => Math.min(f.area.right, Math.max(f.area.left, f.x.at(us / 1e6)));
      for (const item of timeline.items) {
        if (item[END] < view.from || item[START] > view.to) continue;
        const fillColour = operationColours[timeline.operations[item[OPERATION]]] || "#8c8c8c", y = f.y.at(item[ROW]) - f.y.size * 0.42 + item[MEASURED] * bar;
        const put = (from, to, more) => f.root.append(svg("rect", { x: x(from).toFixed(2), y: y.toFixed(1), width: Math.max(0.6, x(to) - x(from)).toFixed(2), height: Math.max(1, bar - 1).toFixed(1), fill: fillColour, ...more }));
        if (item[READY] > item[START]) put(item[START], item[READY], { opacity: 0.2, tip: tipOf(item) });
        put(item[READY], item[END], { opacity: item[MEASURED] ? 0.75 : null, class: item[CRITICAL] && x(item[END]) - x(item[READY]) > 4 ? "critical" : null, tip: tipOf(item) });
        f.root.lastChild.item = item;
      }
      plot.classList.add("timeline");
      return f.root;
    };
    const tools = el("div", { class: "tools" }, [["Zoom in", 0.5], ["Zoom out", 2], ["Whole step", 1e9]].map(([name, factor]) => {
      const button = el("button", { type: "button" }, name);
      button.addEventListener("click", () => zoom(factor));
      return button;
    }));
    const colours = timeline.operations.filter(Boolean).map((name) => [name, operationColours[name] || "#8c8c8c"]);
    const figure = chart("timeline", timeline.is_measured ? "Instructions over time, predicted above measured" : "Instructions over time, predicted",
      "Timeline of one step by stage replica and stream. Arrow keys move, plus and minus zoom, 0 shows the whole step", draw, instructionTable(), legend(colours, ["pale: waiting", "outlined: critical path"]), tools);
    entry = charts[charts.length - 1];
    const plot = entry.plot;
    plot.addEventListener("click", (event) => {
      const item = event.target.item;
      if (!item) return;
      const size = Math.max(item[END] - item[START], length / 1e4);
      move(item[START] - size, item[END] + size);
    });
    plot.addEventListener("keydown", (event) => {
      const width = view.to - view.from, steps = { ArrowLeft: -0.25, ArrowRight: 0.25 }, factors = { "+": 0.5, "=": 0.5, "-": 2, 0: 1e9 };
      if (event.key in steps) move(view.from + steps[event.key] * width, view.to + steps[event.key] * width);
      else if (event.key in factors) zoom(factors[event.key]);
      else return;
      event.preventDefault();
    });
    plot.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8);
    }, { passive: false });
    let dragged = null;
    plot.addEventListener("pointerdown", (event) => { dragged = { x: event.clientX, ...view }; });
    plot.addEventListener("pointerup", () => { dragged = null; });
    plot.addEventListener("pointermove", (event) => {
      if (!dragged || event.buttons !== 1 || Math.abs(event.clientX - dragged.x) < 4) return;
      const shift = (dragged.x - event.clientX) / plot.clientWidth * (dragged.to - dragged.from);
      move(dragged.from + shift, dragged.to + shift);
    });
    return figure;
  }
  function timelineSection() {
    if (!timeline) return null;
    const path = timeline.critical_path, total = sum(path.map((p) => p[2]));
    return section("timeline", "Timeline of one step",
      note((timeline.is_measured ? "In each row the upper bar is the prediction, the lower bar the measurement." : "Predicted; nothing was measured yet.") + " Times count from the step's first computation." +
        (timeline.has_all_replicas ? "" : " One stage replica per stage and device type is shown.")),
      timelineChart(),
      timeline.least_s > 0 && note("The chart leaves out instructions shorter than " + seconds(timeline.least_s) + "; trainyard simulate PLAN --trace FILE writes all."),
      el("h3", null, "Critical path"),
      note("The longest dependency chain of the predicted step over all stage replicas, outlined in the chart. Only a shorter instruction on it shortens the step."),
      table(["<operation", "instructions", "seconds", "share"], path.map(([name, count, s]) => [name, count, seconds(s), show("share", s / total)])));
  }

  /* ---- The network ---------------------------------------------------------------------------- */

  const loads = [[0.25, "#56b4e9", "utilization below 25 %"], [0.5, "#009e73", "below 50 %"], [0.75, "#e69f00", "below 75 %"], [Infinity, "#d55e00", "75 % and more"]];
  const plurals = { device: "devices", device_switch: "device switches", host: "hosts", nic: "NICs", switch: "switches" };
  const tints = { device: "#0072b2", device_switch: "#44aa99", host: "#8c8c8c", nic: "#b5a800", switch: "#aa4499" };
  function drawTopology(width) {
    const levels = new Map();
    network.nodes.forEach((n) => levels.set(n[2], (levels.get(n[2]) || []).concat([n])));
    const heights = [...levels.keys()].sort((a, b) => b - a), height = network.nodes.length > 12 ? 440 : 320;
    const root = svg("svg", { width, height, viewBox: "0 0 " + width + " " + height, "aria-hidden": "true" });
    const at = network.nodes.map((n) => {
      const row = levels.get(n[2]);
      return [24 + (width - 48) * (row.indexOf(n) + 0.5) / row.length, heights.length > 1 ? 36 + (height - 76) * heights.indexOf(n[2]) / (heights.length - 1) : height / 2];
    });
    for (const [from, to, load, bytes, count, kind, rate] of network.links)
      root.append(svg("line", { x1: at[from][0], y1: at[from][1], x2: at[to][0], y2: at[to][1], class: load > 0 ? null : "axis",
        stroke: load > 0 ? loads.find((l) => load < l[0])[1] : null, "stroke-width": load > 0 ? 1.5 + 4 * Math.min(1, load) : 1,
        tip: [(count > 1 ? count + " links, the busiest: " : "") + kind, formats.rate(rate), formats.bytes(bytes) + " per step, utilization " + formats.share(load)] }));
    network.nodes.forEach(([first, kind, level, members], i) => {
      const name = members > 1 ? members + " " + plurals[kind] + " from " + first : first;
      const row = levels.get(level), size = Math.max(3, Math.min(members > 1 ? 14 : 9, (width - 60) / row.length * 0.35)), [x, y] = at[i];
      const look = { fill: tints[kind] || "#8c8c8c", tip: [name, kind.replace("_", " ")] };
      root.append(kind === "device" ? svg("circle", { cx: x, cy: y, r: size, ...look })
        : kind === "nic" ? svg("path", { d: "M" + x + " " + (y - size) + "L" + (x + size) + " " + (y + size) + "L" + (x - size) + " " + (y + size) + "Z", ...look })
          : svg("rect", { x: x - size * (kind === "switch" ? 1.8 : 1), y: y - size * 0.8, width: size * (kind === "switch" ? 3.6 : 2), height: size * 1.6, ...look }));
      if (row.length <= Math.max(1, width / 110))
        root.append(svg("text", { class: "halo", x, y: heights.indexOf(level) === 0 ? y - size - 6 : y + size + 15, "text-anchor": "middle" }, shorten(name, Math.floor(width / row.length / 6.5))));
    });
    return root;
  }
  function drawMatrix(width) {
    const size = network.matrix_size, noun = network.matrix_noun, most = Math.max(...network.matrix.map((m) => m[2]), 1);
    const names = Array.from({ length: size }, (_, i) => String(i)), side = Math.min(width, 480);
    const f = frame(side, Math.min(side, 420), { categories: names, name: "to " + noun }, { categories: names });
    for (const [to, from, bytes] of network.matrix)
      f.root.append(svg("rect", { class: "cell", x: f.x.at(to) - f.x.size / 2, y: f.y.at(from) - f.y.size / 2, width: Math.max(1, f.x.size - 0.5), height: Math.max(1, f.y.size - 0.5),
        opacity: 0.15 + 0.85 * bytes / most, tip: ["from " + noun + " " + from + " to " + noun + " " + to, formats.bytes(bytes) + " per step"] }));
    return f.root;
  }
  function networkSections() {
    if (!network) return lacking("Topology, utilization and traffic", "a plan with a prediction, on up to 16,384 devices");
    const { matrix, matrix_noun: noun } = network, MOST_PAIRS = 200;
    return [section("network", "Topology and link utilization",
      note("Utilization: bytes of a step in the busier direction of a link, as a share of what the link can carry in the predicted step. Communication inside passes, and communication of every few steps only, is not counted."),
      chart("network", "The cluster, links colored by utilization", "Drawing of devices, hosts and switches, links colored by utilization; the table has the busiest links", drawTopology,
        table(["<from", "<to", "<kind", "bandwidth", "bytes per step, there", "and back", "utilization"], network.busiest.map(([from, to, kind, rate, there, back, load]) =>
          [from, to, kind, formats.rate(rate), formats.bytes(there), formats.bytes(back), formats.share(load)])),
        legend(loads.map((l) => [l[2], l[1]]), ["thin and gray: idle", "circles: devices", "squares: hosts, switches", "triangles: NICs"]))),
    section("traffic", "Traffic matrix", note("Bytes of one step by sender and receiver, in the order of the cluster's devices: cells far from the diagonal cross the network."),
      chart("traffic", "Bytes per step, senders in rows, receivers in columns", "Heat map of bytes between senders and receivers; the table has the pairs", drawMatrix,
        cutTable(["from " + noun, "to " + noun, "bytes per step"], matrix.map(([to, from, bytes]) => [from, to, formats.bytes(bytes)]), MOST_PAIRS)))];
  }

  /* ---- Memory --------------------------------------------------------------------------------- */

  const stageNoun = () => (plan.interleave > 1 ? "pipeline rank" : "stage");
  function stageName(first) {
    const alike = plan.stages.map((s, i) => (s.like === first ? i : -1)).filter((i) => i >= 0), last = alike[alike.length - 1], noun = stageNoun();
    return alike.length === 1 ? noun + " " + first : last - first + 1 === alike.length ? noun + "s " + first + " to " + last : alike.length + " " + noun + "s, " + first + " to " + last;
  }
  function layersText(stage) {
    const spans = stage.spans.map((s) => (s.length ? s[0] + " … " + s[1] : "none: actors"));
    return spans.join(plan.interleave > 2 ? "; …; " : "; ") + " (" + stage.layers + (plan.interleave > 1 ? " in " + plan.interleave + " stages" : "") + ")";
  }
  const MOST_CURVES = 10, CURVE_POINTS = 199;
  function memoryCurves() {
    const document_ = documentOf("trainyard.simulation/2"), all = (document_ && document_.memory_over_time) || [];
    const stageOf = (replica) => { let last = 0; if (plan) plan.replicas.reduce((from, r, i) => { if (replica >= from) last = i; return from + r; }, 0); return last; };
    const isKnown = (replica) => plan && replica < sum(plan.replicas);
    const kinds = all.filter((c) => !isKnown(c.stage_replica) || plan.stages[stageOf(c.stage_replica)].like === stageOf(c.stage_replica));
    if (!kinds.length) return null;
    const shown = kinds.length <= MOST_CURVES ? kinds : Array.from({ length: MOST_CURVES }, (_, k) => kinds[Math.floor(k * (kinds.length - 1) / (MOST_CURVES - 1))]);
    const end = Math.max(...shown.map((c) => c.time_s[c.time_s.length - 1])), x = Array.from({ length: CURVE_POINTS }, (_, i) => end * i / (CURVE_POINTS - 1));
    const sampled = (c) => { let next = 0, bytes = null; return x.map((t) => { while (next < c.time_s.length && c.time_s[next] <= t) bytes = c.bytes[next++]; return bytes; }); };
    return lines({ id: "memory-time", caption: "Memory of a device over the simulated time", alternative: "Curves of memory over time, one per kind of stage: it rises with the micro-batches in flight",
      xName: "time", x, xUnit: "s", unit: "memory", yName: "bytes per device",
      series: shown.map((c) => ({ name: isKnown(c.stage_replica) ? stageNoun() + " " + stageOf(c.stage_replica) : "stage replica " + c.stage_replica, values: sampled(c) })) });
  }
  function memorySection() {
    const curves = memoryCurves();
    if (!plan) { lacking("Memory per device", "a plan: trainyard plan ... -o PLAN"); return curves && section("memory", "Memory per device", curves); }
    const kinds = plan.stages.map((s, i) => i).filter((i) => plan.stages[i].like === i), counted = kinds.every((i) => plan.stages[i].bytes);
    return section("memory", "Memory per device",
      table(["<stages that are alike", "<layers of the first", "replicas", "recomputation", "memory per device"], kinds.map((i) => {
        const stage = plan.stages[i];
        return [stageName(i), layersText(stage), stage.replicas, stage.recompute, stage.bytes ? formats.memory(sum(stage.bytes)) : "–"];
      })),
      counted && bars({ id: "memory", caption: "Memory of a device by purpose, one bar for all stages that are alike", alternative: "Stacked bars of memory by purpose per kind of stage, with the usable memory of the smallest device as a line",
        xName: "stages", categories: kinds.map(stageName), unit: "memory", yName: "bytes per device", stacked: true, limit: plan.usable_memory_bytes, limitName: "usable memory of the smallest device",
        series: purposes.map((name, k) => ({ name, values: kinds.map((i) => plan.stages[i].bytes[k]) })) }),
      curves);
  }

  /* ---- Alternatives --------------------------------------------------------------------------- */

  const candidateKinds = [["chosen", "#d55e00"], ["on the Pareto front", "#009e73"], ["simulated", "#0072b2"], ["estimated", "#8c8c8c"]];
  function searchSection() {
    if (!plan || !plan.candidates.length) return lacking("Alternatives", "a plan that was searched for");
    const all = plan.candidates.map(([name, estimated, simulated, bytes, reason, isFront]) => ({ name, estimated, simulated, bytes, reason, isFront, step: simulated > 0 ? simulated : estimated }));
    const chosen = all[0], faster = all.slice(1).filter((c) => c.step > 0 && c.step < chosen.step);
    /* An estimate compared with a simulation is not a point of the Pareto front. */
    const isDoubtful = (c) => faster.includes(c) && !(c.simulated > 0) && chosen.simulated > 0;
    const points = all.filter((c) => c.step > 0 && c.bytes > 0);
    const kindOf = (c) => (c === chosen ? 0 : c.isFront && !isDoubtful(c) ? 1 : c.simulated > 0 ? 2 : 3);
    const draw = (width) => {
      const steps = points.map((c) => c.step), bytes = points.map((c) => c.bytes);
      const f = frame(width, 320, { min: Math.min(...steps) * 0.98, max: Math.max(...steps) * 1.02, unit: "s", name: "step time" }, { min: Math.min(...bytes) * 0.95, max: Math.max(...bytes) * 1.05, unit: "memory", name: "memory per device" });
      points.slice().reverse().forEach((c) => f.root.append(mark(kindOf(c), f.x.at(c.step), f.y.at(c.bytes), { class: "point", fill: candidateKinds[kindOf(c)][1], tip: [c.name, seconds(c.step) + ", " + formats.memory(c.bytes), c.reason] })));
      return f.root;
    };
    const positive = (unit, v) => (v > 0 ? formats[unit](v) : "–");
    return section("search", "Alternatives",
      chart("search", "Step time and memory of every candidate", "Scatter of candidates by step time and memory, with the chosen one and the Pareto front; the table has the reasons", draw,
        cutTable(["<candidate", "estimated", "simulated", "memory", "<rejected because"], all.map((c) => [c.name, positive("s", c.estimated), positive("s", c.simulated), positive("memory", c.bytes), c.reason]), 100,
          ": --candidates FILE writes all"),
        legend(candidateKinds)),
      faster.length > 0 && cutTable(["<faster than the chosen plan", "step time", "<by", "<rejected because"], faster.map((c) => [c.name, seconds(c.step), c.simulated > 0 ? "simulation" : "estimate",
        c.reason + (isDoubtful(c) ? "; it was not simulated, and the chosen plan's own estimate is " + seconds(chosen.estimated) : "")]), 20));
  }

  /* ---- What if -------------------------------------------------------------------------------- */

  /* "8", "x0.5", "100Gb/s": a number with an optional unit. */
  const isQuantity = (text) => /^x?[0-9.]+[^ \-:@0-9]*$/.test(text);
  function readWhatif(document_) {
    const root = document_.content, axes = root.vary.map((v) => ({ key: v.key, values: v.values, isOrdered: v.values.every(isQuantity) }));
    const total = axes.reduce((n, a) => n * a.values.length, 1), answers = Array.from({ length: total }, () => null);
    for (const row of root.rows) answers[axes.reduce((n, a) => n * a.values.length + a.values.indexOf(row.values[a.key]), 0)] = row;
    /* Order of the x axis: quantities before names, then more values before fewer. */
    const x = axes.reduce((best, a, i) => (a.isOrdered !== axes[best].isOrdered ? a.isOrdered : a.values.length > axes[best].values.length) ? i : best, 0);
    const valuesOf = (index) => axes.map((a, i) => a.values[Math.floor(index / axes.slice(i + 1).reduce((n, b) => n * b.values.length, 1)) % a.values.length]);
    return { path: document_.path, question: root.question || {}, axes, answers, x, valuesOf, text: (index) => axes.map((a, i) => a.key + "=" + valuesOf(index)[i]).join(", ") };
  }
  const hasPlan = (row) => row && !row.reason && isNumber(row.samples_per_s);
  function whatifAnswer(w) {
    const planned = w.answers.map((r, i) => i).filter((i) => hasPlan(w.answers[i])), failed = w.answers.filter((r) => r && !hasPlan(r)).length, undone = w.answers.length - planned.length - failed;
    const ordered = planned.slice().sort((a, b) => w.answers[b].samples_per_s - w.answers[a].samples_per_s), best = ordered[0], worst = ordered[ordered.length - 1];
    return el("p", { class: "verdict" }, "Of " + plural(w.answers.length, "combination") + " " + planned.length + " ha" + (planned.length === 1 ? "s" : "ve") + " a plan",
      failed > 0 && ", " + failed + " ha" + (failed === 1 ? "s" : "ve") + " none", undone > 0 && ", " + undone + (undone === 1 ? " is" : " are") + " not done", ".",
      best !== undefined && [" Fastest: ", strong(formats.count(w.answers[best].samples_per_s) + " samples/s"), " with ", strong(w.text(best)),
        worst !== best && ", " + digits(w.answers[best].samples_per_s / w.answers[worst].samples_per_s) + " times as fast as the slowest, " + w.text(worst), "."]);
  }
  const MOST_LINES = 8;
  const whatifFigures = [["devices", "number", "devices"], ["step time", "s", "step_time_s"], ["samples/s", "count", "samples_per_s"], ["tokens/s", "count", "tokens_per_s"],
    ["MFU", "share", "mfu"], ["memory", "memory", "peak_memory_bytes"], ["days", "days", "days"], ["cost", "usd", "cost_usd"]];
  function whatifLines(w) {
    const axis = w.axes[w.x], found = new Map();
    w.answers.forEach((row, index) => {
      const values = w.valuesOf(index), name = w.axes.map((a, i) => (i === w.x ? null : a.key + "=" + values[i])).filter(Boolean).join(", ") || "samples/s";
      if (!found.has(name)) found.set(name, { name, rows: [] });
      found.get(name).rows[axis.values.indexOf(values[w.x])] = hasPlan(row) ? row : null;
    });
    return [...found.values()].slice(0, MOST_LINES).map((line) => {
      const range = (pick) => line.rows.map((r) => r && r.samples_per_s * pick(1, r.step_time_s / (r.estimated_step_time_s || r.step_time_s)));
      return { ...line, values: line.rows.map((r) => r && r.samples_per_s), low: range(Math.min), high: range(Math.max) };
    });
  }
  /* Samples per second and device, as a share of the first point that has a plan. */
  function scalingChart(w, series, number) {
    const counts = series.flatMap((line) => line.rows.filter(Boolean).map((r) => r.devices)).filter(isNumber), axis = w.axes[w.x];
    if (!axis.isOrdered || new Set(counts).size < 2) return null;
    const efficiency = series.map((line) => {
      const each = line.rows.map((r) => (r && r.devices > 0 ? r.samples_per_s / r.devices : null)), first = each.find(isNumber);
      return { name: line.name, values: each.map((v) => (isNumber(v) ? v / first : null)) };
    });
    return lines({ id: "scaling-" + number, caption: "Scaling: throughput per device compared with the first point", alternative: "Lines of scaling efficiency, with the ideal at 100 %", xName: axis.key,
      categories: axis.values, unit: "share", yName: "efficiency", series: efficiency.concat([{ name: "ideal", values: axis.values.map(() => 1), colour: "#8c8c8c", dashed: true }]) });
  }
  /* A slider per varied key; time and cost of a training follow from the figures of the combination. */
  function sliders(w) {
    const result = el("div", { class: "result", "aria-live": "polite" }), chosen = w.axes.map(() => 0), training = { tokens: NaN, price: NaN };
    const hasTokens = w.answers.some((r) => r && r.tokens_per_s > 0), amount = hasTokens ? ["tokens", "billion tokens", 1e9] : ["samples", "million samples", 1e6];
    function update() {
      const index = w.axes.reduce((n, a, i) => n * a.values.length + chosen[i], 0), row = w.answers[index];
      if (!hasPlan(row)) { result.replaceChildren(note(w.text(index) + ": " + ((row && row.reason) || "not done"))); return; }
      const rate = hasTokens ? row.tokens_per_s : row.samples_per_s, days = training.tokens * amount[2] / rate / 86400;
      result.replaceChildren(cards(whatifFigures.map(([name, unit, key]) => [name, row[key] ? show(unit, row[key]) : "–"])
        .concat([["days of training", show("days", days)], ["cost of training", show("usd", days * 24 * row.devices * training.price)]])),
      note((row.limited_by ? "Bottleneck: " + row.limited_by + ". " : "") + (row.plan || "")));
    }
    const controls = w.axes.filter((a) => a.values.length > 1).map((a) => {
      const i = w.axes.indexOf(a), value = el("output", null, a.values[0]);
      const input = el("input", { type: "range", min: 0, max: a.values.length - 1, step: 1, value: 0, "data-key": a.key });
      input.addEventListener("input", () => { chosen[i] = Number(input.value); value.textContent = a.values[chosen[i]]; update(); });
      return el("label", null, a.key + " ", input, " ", value);
    });
    const entry = (name, key) => {
      const input = el("input", { type: "number", min: 0, step: "any", "data-key": key });
      input.addEventListener("input", () => { training[key] = input.value === "" ? NaN : Number(input.value); update(); });
      return el("label", null, name + " ", input);
    };
    update();
    return el("div", { class: "panel sliders" }, controls, entry(amount[1] + " to train", "tokens"), entry("$ per device-hour", "price"), result);
  }
  function whatifSection() {
    const all = documentsOf("trainyard.whatif/1");
    if (!all.length) lacking("What if", "trainyard whatif ... --vary hosts=1,2,4 -o FILE, and FILE with the plan");
    let hasScaling = false;
    const parts_ = all.map((document_, number) => {
      const w = readWhatif(document_), axis = w.axes[w.x], series = whatifLines(w), failed = w.answers.map((r, i) => i).filter((i) => w.answers[i] && !hasPlan(w.answers[i]));
      const plot = { id: "whatif-" + number, caption: "Throughput of the best plan over " + axis.key, alternative: axis.isOrdered ? "Lines of samples per second over the varied value, with ranges from the estimate to the simulation" : "Bars of samples per second, one per value",
        xName: axis.key, categories: axis.values, unit: "count", yName: "samples/s", series };
      const scaling = scalingChart(w, series, number), MOST_ROWS = 400;
      hasScaling = hasScaling || scaling !== null;
      const used = whatifFigures.filter(([, , key]) => !/days|cost/.test(key) || w.answers.some((r) => r && isNumber(r.days)));
      return [w.question.workload && note(w.question.workload + " on " + w.question.cluster + ", each combination with its best plan. Ranges reach from the estimate to the simulation. From " + w.path + "."),
        (plan || number > 0) && whatifAnswer(w), sliders(w), axis.isOrdered ? lines(plot) : bars(plot),
        failed.length > 0 && cutTable(["<no plan for", "<because"], failed.map((i) => [w.text(i), w.answers[i].reason || "–"]), 100), scaling,
        details("Every combination", cutTable(w.axes.map((a) => "<" + a.key).concat(used.map((f) => f[0]), ["<bottleneck", "<plan, or why there is none"]), w.answers.map((r, i) => [r, i]).filter((r) => r[0]).map(([r, i]) =>
          w.valuesOf(i).concat(used.map(([, unit, key]) => show(unit, r[key])), [r.limited_by || "–", r.reason || r.plan || "–"])), MOST_ROWS))];
    });
    if (!hasScaling) lacking("Scaling", "a what-if over hosts or devices");
    return all.length ? section("whatif", "What if", parts_) : null;
  }

  /* ---- Loss, cost ----------------------------------------------------------------------------- */

  const lossText = (loss) => (isNumber(loss) ? formats.loss(loss) : "not finite");
  function notesOf(score) { return score && Array.isArray(score.notes) && score.notes.length > 0 && el("ul", { class: "faint" }, score.notes.map((n) => el("li", null, String(n)))); }
  function lossCharts() {
    const count = run.step_count, at = run.losses.map((l, i) => i * run.stride + 1), pace = run.wall_s / count, predicted = prediction.step_time_s;
    const end = count * Math.max(pace, predicted), x = Array.from({ length: Math.min(count, 400) }, (_, i, n) => end * (i + 1) / Math.min(count, 400));
    const after = (s, step) => (step > 0 && s / step >= 1 && s / step <= count + 1e-9 ? run.losses[Math.floor((Math.floor(s / step) - 1) / run.stride)] : null);
    return [note("Mean over the " + plan.global_batch + " samples of each step: " + lossText(run.losses[0]) + " at the first step, " + lossText(run.last_loss) + " at step " + count + "."),
      lines({ id: "loss-steps", caption: "Loss over steps", alternative: "Curve of the training loss", xName: "steps", x: at, xUnit: "count", unit: "number", yName: "loss", series: [{ name: "training loss", values: run.losses }] }),
      run.wall_s > 0 && lines({ id: "loss-time", caption: "Loss over seconds of training", alternative: "Curves of the training loss over time, with the measured and the predicted step time", xName: "seconds", x, xUnit: "s", unit: "number", yName: "loss",
        series: [{ name: "with the measured step time", values: x.map((s) => after(s, pace)) }].concat(predicted > 0 ? [{ name: "with the predicted step time", values: x.map((s) => after(s, predicted)), dashed: true }] : []) })];
  }
  function evaluationCharts() {
    const all = run.evaluations, variant = run.variant;
    return all.length > 0 && [lines({ id: "accuracy", caption: "Test accuracy over seconds of training", alternative: "Curve of the accuracy of every evaluation over measured time", xName: "seconds", x: all.map((e) => e[1]), xUnit: "s", unit: "share", yName: "accuracy",
      series: [{ name: "test accuracy", values: all.map((e) => e[2]) }] }),
    table(["steps", "measured time", "test accuracy", "test loss"].concat(variant ? ["accuracy as " + variant, "loss as " + variant] : []), all.map(([step, s, accuracy, loss, other, otherLoss]) =>
      [step, seconds(s), (accuracy * 100).toFixed(2) + " %", lossText(loss)].concat(variant ? [(other * 100).toFixed(2) + " %", lossText(otherLoss)] : [])))];
  }
  function lossSection() {
    const score = documentOf("trainyard.score/1"), hasLoss = plan && run && run.losses, hasTarget = score && score.time_to_target_s;
    if (!hasLoss && !hasTarget)
      return lacking("Loss and time to target", "a run of the plan (loss); --task NAME or a calibration, as the catalogue does not know how this workload converges (time to target)");
    const rows = [["time to target", "time_to_target_s", "s"], ["samples to target", "samples_to_target", "count"], ["samples more by compression", "compression_multiplier", "factor"],
      ["samples more by staleness", "staleness_multiplier", "factor"], ["cost", "money_usd", "usd"], ["energy", "energy_j", "energy"]];
    return section("loss", "Loss and time to target", hasLoss && [lossCharts(), evaluationCharts()],
      hasTarget && [table(["<predicted", "low", "expected", "high"], rows.filter((r) => score[r[1]]).map(([name, key, unit]) => [name].concat(["low", "expected", "high"].map((end) => show(unit, score[key][end]))))),
        note("Convergence: " + (score.convergence_provenance || "prior") + "."), notesOf(score)]);
  }
  function costSection() {
    const score = documentOf("trainyard.score/1"), rate = (measured || prediction || {}).samples_per_s;
    if (!(rate > 0) || (!isNumber(bill.hour) && !isNumber(bill.power))) return lacking("Cost and energy", "a cluster whose hosts have a price or whose devices have a power");
    const work = [["a step", plan.global_batch], ["a million samples", 1e6]].concat(plan.tokens_per_sample > 0 ? [["a billion tokens", 1e9 / plan.tokens_per_sample]] : []);
    return section("cost", "Cost and energy", note(isNumber(bill.hour) ? "The cluster costs " + formats.usd(bill.hour) + " per hour." : "No price of these hosts is known."),
      isNumber(bill.power) && note("It draws " + formats.power(bill.power) + " while training."),
      table(["<at the " + (measured ? "measured" : "predicted") + " throughput", "time", "cost", "energy"], work.map(([name, samples]) => [name, seconds(samples / rate), show("usd", bill.usd(samples / rate)), show("energy", bill.energy(samples / rate))])),
      !(score && score.time_to_target_s) && notesOf(score));
  }

  /* ---- Other documents ------------------------------------------------------------------------ */

  function compressionSection() {
    const root = documentOf("trainyard.compression/1");
    if (!root) return lacking("Bandwidth at which compression pays", "a plan with replicas that exchange gradients");
    return section("compression", "Bandwidth at which compression pays",
      note("All gradient communication of a step, without overlap: a compressor pays below the bandwidth where its line crosses that of none."),
      lines({ id: "compression", caption: "Seconds of gradient communication over bandwidth", alternative: "Lines of seconds over bandwidth by compressor: they cross where one begins to pay", xName: "bandwidth", x: root.bandwidths_bytes_per_s, xUnit: "rate", unit: "s",
        yName: "seconds", logX: true, logY: true, limit: root.ring_bandwidth_bytes_per_s, limitName: "narrowest ring of this cluster", series: root.curves.map((c) => ({ name: c.compression, values: c.seconds })) }));
  }
  function validationSection() {
    const root = documentOf("trainyard.validation/1");
    if (!root) return lacking("Error on published runs", "the document of trainyard validate --json");
    const series = [["median error", "median_error"], ["mean error", "mean_error"], ["90th percentile", "p90_error"], ["pair order right", "pair_order"]];
    return section("validation", "Error on published runs", bars({ id: "validation", caption: "Error of predictions, and pairs in the right order", alternative: "Bars of errors and pair order by source", xName: "source", categories: root.sources.map((s) => s.source),
      unit: "share", yName: "share", series: series.map(([name, key]) => ({ name, values: root.sources.map((s) => s[key]) })) }));
  }
  function copyButton(pre) {
    const button = el("button", { type: "button", class: "copy" }, "Copy");
    button.addEventListener("click", () => {
      getSelection().selectAllChildren(pre);
      button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
    });
    return button;
  }
  function launchSection() {
    const root = documentOf("trainyard.launch/1");
    if (!root) return lacking("Launch files", "a plan");
    const usable = root.targets.filter((t) => !t.reason), refused = root.targets.filter((t) => t.reason);
    const file = ({ name, text, bytes }) => {
      const pre = text && el("pre", { tabindex: 0 }, text), length = new TextEncoder().encode(text || "").length;
      return [el("h4", null, name, pre && copyButton(pre)), pre, bytes > length && note(formats.bytes(bytes) + "; trainyard export writes it in full.")];
    };
    const panels = usable.map((t) => el("div", { class: "tab", role: "tabpanel", "aria-label": t.target }, el("h3", null, t.target),
      note(t.title, t.next && [". To start: ", el("code", null, t.next)]), (t.files || []).map(file)));
    const tabs = usable.map((t, i) => {
      const button = el("button", { type: "button", role: "tab", "aria-selected": i === 0 }, t.target);
      button.addEventListener("click", () => panels.forEach((panel, k) => { panel.hidden = k !== i; tabs[k].setAttribute("aria-selected", k === i); }));
      panels[i].hidden = i !== 0;
      return button;
    });
    return section("launch", "Launch files", note("Written by ", el("code", null, "trainyard export " + (root.plan || "PLAN") + " --to TARGET -o FOLDER"), "."),
      usable.length > 0 && el("div", { class: "tools tab-list", role: "tablist" }, tabs), panels,
      refused.length > 0 && table(["<cannot express this plan", "<because"], refused.map((t) => [t.target, t.reason])));
  }
  const phaseRate = (p) => p.steps * p.plan.global_batch / p.time_s;
  function phasesAnswer(root) {
    const phases = root.phases, time = sum(phases.map((p) => p.time_s)), score = documentOf("trainyard.phased-score/1"), target = score && score.time_to_target_s, rates = phases.map(phaseRate);
    return [el("p", { class: "verdict" }, "Train ", strong(phases[0].plan.workload.name), " on ", strong(phases[0].plan.cluster_name), " in ", strong(plural(phases.length, "phase")), ": " + seconds(time) + " predicted.",
      target && (score.is_reached ? " The target is met in phase " + score.last_phase + ", after " + Math.round(score.steps_to_target) + " steps in all."
        : " They go " + digits(100 * score.share_of_way.expected) + " % of the way to the target: " + Math.round(score.missing_steps) + " more steps of phase " + score.last_phase + " would reach it.")),
    cards([["predicted time of all phases", seconds(time)],
      target && [score.is_reached ? "time to target" : "time to target, if continued", seconds(target.expected)], target && ["80 % interval", seconds(target.low) + " to " + seconds(target.high)],
      ...(rates.length <= 5 ? rates.map((r, i) => ["samples/s of phase " + (i + 1), formats.count(r)]) : [["samples/s by phase", formats.count(Math.min(...rates)) + " to " + formats.count(Math.max(...rates))]])])];
  }
  function phasesSection() {
    const root = documentOf("trainyard.phased-plan/1"), score = documentOf("trainyard.phased-score/1");
    if (!root) return lacking("Phases of the training", "the document of trainyard plan --phases");
    const shares = root.phases.map((p, i) => (score && score.phases && score.phases[i] ? score.phases[i].share_of_way : undefined)), hasShares = isNumber(shares[0]);
    const sizes = root.phases.map((p) => (p.plan.workload.input_shape.length === 3 ? p.plan.workload.input_shape.slice(1).join("x") : "")), hasSizes = new Set(sizes).size > 1;
    const pick = (isShown, cell) => (isShown ? [cell] : []);
    return section("phases", "Phases of the training", note("They run in this order; each continues from the weights, the optimizer states and the data position of the previous one."),
      table(["phase", "batch", ...pick(hasSizes, "images"), "learning rate", "momentum", "steps", "step time", "time", "samples/s", ...pick(hasShares, "of the way"), "<plan"], root.phases.map((p, i) =>
        [i + 1, p.plan.global_batch, ...pick(hasSizes, sizes[i]), Number(p.plan.optimizer.learning_rate.toPrecision(4)), Number((p.plan.optimizer.momentum || 0).toPrecision(4)), p.steps, seconds(p.time_s / p.steps), seconds(p.time_s),
          formats.count(phaseRate(p)), ...pick(hasShares, isNumber(shares[i]) ? digits(100 * shares[i]) + " %" : "–"), p.plan.strategy])));
  }

  /* ---- Provenance ----------------------------------------------------------------------------- */

  function provenanceSection() {
    const facts = [];
    if (plan)
      facts.push(["layer and communication times", plan.certainty], ["predicted step", report.is_simulated ? "simulated, with contention on links and cores" : "estimated"],
        ["memory", "counted by the planner's memory model (docs/design/cost-model.md)"], ["framework", plan.framework_title], ["constants of the framework", plan.framework_source],
        ["options that reproduce this plan", plan.reproduce], ["workload", plan.workload_source], ["workload digest", plan.workload_digest], ["cluster digest", plan.cluster_digest],
        ["deployment", plan.deployment && plan.deployment.sentence],
        ["devices that stay idle", plan.idle_devices > 0 && plan.idle_devices + " of " + (plan.idle_devices + plan.launched) + ", counted in the cost and power of a step"],
        ...plan.uneven.map((text) => ["uneven division", text]), ["profile of", plan.profile_machine], ["profile date", plan.profile_date], ["profile libraries", plan.profile_versions],
        ...plan.device_sources);
    if (run) facts.push(["run on", run.machine], ["run date", run.date], ["run libraries", run.versions]);
    facts.push(["command", report.command]);
    return section("provenance", "Provenance", table(["<figure", "<source"], facts.filter((f) => f[1])),
      report.files.length > 0 && table(["<file", "<schema", "<SHA-256"], report.files.map((f) => [f.path, f.schema, f.sha256])));
  }
  function missingSection() {
    return missing.length ? section("left-out", "Sections without data", table(["<section", "<needs"], missing)) : null;
  }
  /* Rows of the glossary, "| word, other word (note) | meaning |", whose words the page uses. */
  function glossarySection() {
    const texts = [], walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) texts.push(walker.currentNode.data);
    const text = texts.join(" ").toLowerCase();
    const isUsed = (word) => {
      for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
        const after = text.slice(at + word.length, at + word.length + 3).replace(/^(es|s)/, "");
        if (!/[a-z0-9]/.test(text[at - 1] || " ") && !/^[a-z0-9]/.test(after)) return true;
      }
      return false;
    };
    const code = (cell) => cell.split("`").map((part, i) => (i % 2 ? el("code", null, part) : part));
    const rows = report.glossary.split("\n").map((line) => line.match(/^\| (.*?) \| (.*) \|$/)).filter((m) => m && m[1] !== "word" && !/^-+$/.test(m[1]) &&
      m[1].toLowerCase().replace(/\(.*/, "").split(",").map((w) => w.trim()).some((w) => w && isUsed(w)));
    return rows.length ? section("words", "Glossary of this report", table(["<word", "<meaning"], rows.map((m) => [el("dfn", null, code(m[1])), el("span", null, code(m[2]))]))) : null;
  }

  /* ---- The page ------------------------------------------------------------------------------- */

  function origin() {
    const made = [report.date, report.version && "by trainyard " + report.version].filter(Boolean).join(" ");
    return (made || (plan && plan.framework)) && el("p", { class: "faint origin" }, made && "Made " + made + ". ", plan && plan.framework && "Framework: " + plan.framework + ", " + plan.framework_title + ".");
  }
  const makers = [nextSection, answerSection, versusSection, breakdownSection, errorsSection, stagesSection, timelineSection, networkSections, memorySection, searchSection, whatifSection,
    lossSection, costSection, compressionSection, validationSection, launchSection, phasesSection, provenanceSection, missingSection, glossarySection];
  const contents = el("ul");
  fill(main, null, [origin(), el("nav", { "aria-label": "Sections" }, contents)]);
  for (const make of makers) {
    try {
      fill(main, null, [make()]);
    } catch (error) {
      main.append(el("p", { class: "over undrawn" }, "A section could not be drawn (" + error.message + ")."));
    }
  }
  fill(contents, null, sections.map(([id, title]) => el("li", null, el("a", { href: "#" + id }, title))));
  charts.slice().forEach(drawChart);
  let width = main.clientWidth;
  new ResizeObserver(() => {
    if (main.clientWidth === width) return;
    width = main.clientWidth;
    charts.slice().forEach(drawChart);
  }).observe(main);

  const tip = el("div", { class: "tip", hidden: "" });
  document.body.append(tip);
  main.addEventListener("pointermove", (event) => {
    const lines_ = event.target.tip;
    tip.hidden = !lines_;
    if (!lines_) return;
    tip.replaceChildren(...lines_.map((line, i) => el(i === 0 ? "strong" : "div", null, line)));
    tip.style.left = Math.max(0, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.max(0, Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 8)) + "px";
  });
  main.addEventListener("pointerleave", () => { tip.hidden = true; });

  const root = document.documentElement, toggle = document.getElementById("theme"), darkness = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkness.matches);
  const labelToggle = () => { toggle.textContent = isDark() ? "Light" : "Dark"; };
  toggle.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; labelToggle(); });
  darkness.addEventListener("change", labelToggle);
  labelToggle();
})();
