"use strict";
(function () {
  /* ---- Plain things: work without charts ------------------------------------------------------ */

  var root = document.documentElement;

  function zoomPlainTimeline() {
    var lanes = document.querySelector(".lanes");
    var tools = document.querySelector(".tools");
    var pointed = document.getElementById("pointed");
    if (!lanes || !tools) return;
    var svg = lanes.querySelector("svg");
    var zoom = 1;
    tools.hidden = false;
    function show(next) {
      var middle = (lanes.scrollLeft + lanes.clientWidth / 2) / lanes.scrollWidth;
      zoom = Math.min(64, Math.max(1, next));
      svg.setAttribute("width", zoom * 100 + "%");
      lanes.scrollLeft = middle * lanes.scrollWidth - lanes.clientWidth / 2;
    }
    tools.addEventListener("click", function (event) {
      var step = event.target.getAttribute("data-zoom");
      if (step) show(step === "0" ? 1 : zoom * Number(step));
    });
    lanes.addEventListener("mouseover", function (event) {
      var title = event.target.querySelector && event.target.querySelector("title");
      if (title && event.target.tagName === "rect") pointed.textContent = title.textContent;
    });
  }

  function addCopyButton(pre) {
    var copy = document.createElement("button");
    copy.type = "button";
    copy.className = "copy";
    copy.textContent = "Copy";
    copy.addEventListener("click", function () {
      var range = document.createRange();
      range.selectNodeContents(pre);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      copy.textContent = document.execCommand("copy") ? "Copied" : "Selected";
    });
    pre.previousElementSibling.appendChild(copy);
  }

  /* Blocks become tabs; every file has a button to copy it. */
  function makeTabs() {
    document.querySelectorAll(".tabs").forEach(function (tabs) {
      var list = document.createElement("div");
      list.className = "tools tab-list";
      list.setAttribute("role", "tablist");
      var blocks = Array.from(tabs.querySelectorAll(".tab"));
      blocks.forEach(function (block, index) {
        var button = document.createElement("button");
        button.type = "button";
        button.setAttribute("role", "tab");
        button.textContent = block.querySelector("h3").textContent;
        block.setAttribute("role", "tabpanel");
        block.setAttribute("aria-label", button.textContent);
        button.addEventListener("click", function () {
          blocks.forEach(function (other, i) {
            other.hidden = i !== index;
            list.children[i].setAttribute("aria-selected", String(i === index));
          });
        });
        list.appendChild(button);
        block.querySelectorAll("pre").forEach(addCopyButton);
      });
      tabs.insertBefore(list, tabs.firstChild);
      if (list.firstChild) list.firstChild.click();
    });
  }

  zoomPlainTimeline();
  makeTabs();

  function isDark() {
    var chosen = root.getAttribute("data-theme");
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  var redraw = function () {};
  var toggle = document.getElementById("theme");
  function labelToggle() { toggle.textContent = isDark() ? "Light" : "Dark"; }
  toggle.hidden = false;
  labelToggle();
  toggle.addEventListener("click", function () {
    root.setAttribute("data-theme", isDark() ? "light" : "dark");
    labelToggle();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { labelToggle(); redraw(); });

  /* ---- Charts --------------------------------------------------------------------------------- */

  var holder = document.getElementById("data");
  var library = window.trainyardCharts;
  if (!holder || !library) return;
  var data = JSON.parse(holder.textContent);
  /* Okabe and Ito's palette, with a ninth and tenth of Tol's. */
  var palette = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a800", "#8c8c8c", "#aa4499", "#44aa99"];

  function digits(value) { return value === 0 ? "0" : String(Number(value.toPrecision(3))); }
  function scaled(value, base, units) {
    var power = 0;
    while (Math.abs(value) >= base && power < units.length - 1) { value /= base; power++; }
    return digits(value) + " " + units[power];
  }
  function seconds(value) {
    if (value === 0) return "0 s";
    var size = Math.abs(value);
    if (size < 1e-6) return digits(value * 1e9) + " ns";
    if (size < 1e-3) return digits(value * 1e6) + " µs";
    if (size < 1) return digits(value * 1e3) + " ms";
    if (size < 120) return digits(value) + " s";
    if (size < 7200) return digits(value / 60) + " min";
    return size < 172800 ? digits(value / 3600) + " h" : digits(value / 86400) + " d";
  }
  var formats = {
    s: seconds,
    bytes: function (v) { return scaled(v, 1000, ["B", "kB", "MB", "GB", "TB", "PB"]); },
    memory: function (v) { return scaled(v, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]); },
    count: function (v) { return Math.abs(v) < 1000 ? digits(v) : scaled(v, 1000, ["", "k", "M", "G", "T"]); },
    share: function (v) { return digits(v * 100) + " %"; },
    usd: function (v) { return "$" + digits(v); },
    energy: function (v) { return scaled(v / 3600, 1000, ["Wh", "kWh", "MWh", "GWh"]); },
    power: function (v) { return scaled(v, 1000, ["W", "kW", "MW", "GW"]); },
    factor: function (v) { return "x " + digits(v); },
    rate: function (v) { return scaled(v, 1000, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]); },
  };

  function colours() {
    var style = getComputedStyle(root);
    function of(name) { return style.getPropertyValue(name).trim(); }
    return { paper: of("--paper"), ink: of("--ink"), faint: of("--faint"), line: of("--line"), panel: of("--panel"), accent: of("--accent") };
  }

  /* A tooltip is an element with lines of text: no markup, no style of its own. */
  function tip(lines) {
    var box = document.createElement("div");
    box.className = "tip";
    lines.forEach(function (line, index) {
      var row = document.createElement(index === 0 ? "strong" : "div");
      row.textContent = line;
      box.appendChild(row);
    });
    return box;
  }

  function base(c) {
    return {
      animation: false,
      color: palette,
      backgroundColor: "transparent",
      textStyle: { color: c.ink, fontFamily: "system-ui, sans-serif" },
      grid: { left: 12, right: 18, top: 44, bottom: 14, containLabel: true },
      legend: { type: "scroll", top: 6, left: 8, right: 8, textStyle: { color: c.ink }, pageTextStyle: { color: c.ink }, pageIconColor: c.accent,
        pageIconInactiveColor: c.line, inactiveColor: c.faint, itemWidth: 14, itemHeight: 10 },
      tooltip: { confine: true, backgroundColor: c.panel, borderColor: c.line, textStyle: { color: c.ink } },
    };
  }
  function axis(c, more) {
    return Object.assign({
      axisLine: { lineStyle: { color: c.line } }, axisTick: { lineStyle: { color: c.line } }, axisLabel: { color: c.faint, hideOverlap: true },
      splitLine: { lineStyle: { color: c.line, opacity: 0.6 } }, nameTextStyle: { color: c.faint }, nameGap: 26,
    }, more);
  }
  function valueAxis(c, unit, name, more) {
    var format = formats[unit];
    return axis(c, Object.assign({ type: "value", name: name, nameLocation: "middle", axisLabel: { color: c.faint, formatter: format, hideOverlap: true } }, more));
  }

  function limitLine(chart, c, position) {
    if (!chart.limit) return undefined;
    return { silent: true, symbol: "none", label: { formatter: chart.limitName, position: position, align: "right", color: c.ink },
      lineStyle: { color: c.ink, type: "dashed", width: 1.5 }, data: [{ xAxis: chart.limit }] };
  }

  function longestBar(chart) {
    return chart.categories.reduce(function (m, _, i) {
      return Math.max(m, chart.series.reduce(function (sum, s) { return sum + s.values[i]; }, 0));
    }, 0);
  }
  function highest(chart) {
    return chart.series.reduce(function (m, s) { return Math.max.apply(null, s.values.concat(m)); }, 1);
  }
  /* About five ticks at round numbers of bytes. */
  function binaryStep(most) { return Math.pow(2, Math.ceil(Math.log2(most / 6))); }
  /* An axis of bytes that begins and ends at one of them. */
  function binaryAxis(least, most) {
    var step = binaryStep(Math.max(1, most - least));
    return { min: Math.floor(least / step) * step, max: Math.ceil(most / step) * step, interval: step };
  }

  /* Patterns tell stacked series apart without colour. */
  function bars(chart, c, plot) {
    var format = formats[chart.unit];
    var used = chart.series.filter(function (s) { return s.values.some(function (v) { return v > 0; }); });
    plot.classList.toggle("tall", chart.categories.length * (chart.stacked ? 1 : used.length) > 10);
    var option = base(c);
    option.aria = { enabled: true, label: { enabled: false }, decal: { show: used.length > 1 && chart.stacked, decals: [{ symbol: "none" },
      { dashArrayX: [1, 0], dashArrayY: [2, 6], rotation: Math.PI / 4, color: "rgba(255,255,255,.35)" }, { symbol: "none" },
      { symbol: "circle", dashArrayX: [[8, 8], [0, 8, 8, 0]], dashArrayY: [6, 0], symbolSize: 0.6, color: "rgba(255,255,255,.35)" }] } };
    /* A limit so far away that the bars would vanish is told, not drawn. */
    var longest = longestBar(chart), hasLine = chart.limit && chart.limit <= 8 * longest;
    var isFar = chart.limit && !hasLine;
    option.xAxis = valueAxis(c, chart.unit, isFar ? chart.limitName + ":\n" + format(chart.limit) + ", far to the right" : "", {
      nameGap: isFar ? 34 : 26, nameTextStyle: { color: c.faint, lineHeight: 15 },
      max: hasLine ? function (range) { return Math.max(range.max, chart.limit * 1.02); } : undefined,
      interval: chart.unit === "memory" ? binaryStep(hasLine ? Math.max(longest, chart.limit) : longest || 1) : undefined });
    if (hasLine) option.grid.top = 60;
    if (isFar) option.grid.bottom = 56;
    option.yAxis = axis(c, { type: "category", data: chart.categories, inverse: true, axisLabel: { color: c.faint, width: plot.clientWidth < 500 ? 110 : 200, overflow: "truncate" } });
    option.tooltip.formatter = function (at) { return tip([at.name, at.seriesName + ": " + format(at.value)]); };
    option.series = used.map(function (s, index) {
      return { name: s.name, type: "bar", stack: chart.stacked ? "all" : undefined, data: s.values, barMaxWidth: 26, itemStyle: { color: s.colour },
        markLine: index === 0 && hasLine ? limitLine(chart, c, "start") : undefined };
    });
    return option;
  }

  function bandSeries(chart, s, colour) {
    return { name: s.name, type: "custom", silent: true, legendHoverLink: false, tooltip: { show: false }, z: 1, data: [0],
      renderItem: function (params, api) {
        var above = [], below = [];
        s.low.forEach(function (low, i) {
          if (low === null || s.high[i] === null) return;
          var x = chart.categories ? i : chart.x[i];
          above.push(api.coord([x, s.high[i]]));
          below.unshift(api.coord([x, low]));
        });
        return { type: "polygon", shape: { points: above.concat(below) }, style: { fill: colour, opacity: 0.18 } };
      } };
  }

  function lines(chart, c) {
    var format = formats[chart.unit], xFormat = formats[chart.xUnit];
    var option = base(c);
    var many = (chart.categories || chart.x).length > 60;
    option.grid.bottom = 34;
    option.grid.left = 34;
    option.xAxis = chart.categories
      ? axis(c, { type: "category", data: chart.categories, name: chart.xName, nameLocation: "middle" })
      : valueAxis(c, chart.xUnit, chart.xName, { type: chart.logX ? "log" : "value", scale: true });
    option.yAxis = valueAxis(c, chart.unit, chart.yName, Object.assign({ type: chart.logY ? "log" : "value", nameGap: 52 },
      chart.unit === "memory" ? binaryAxis(0, highest(chart)) : {}));
    option.tooltip.trigger = "axis";
    option.tooltip.formatter = function (all) {
      if (!all.length) return "";
      var head = chart.categories ? chart.xName + " " + all[0].name : xFormat(all[0].value[0]) + (chart.xUnit === "count" ? " " + chart.xName : "");
      return tip([head].concat(all.filter(function (a) { return a.seriesType === "line"; }).map(function (a) {
        var value = chart.categories ? a.value : a.value[1];
        return a.seriesName + ": " + (value === null || value === undefined ? "no plan" : format(value));
      })));
    };
    option.series = [];
    chart.series.forEach(function (s, index) {
      var colour = s.colour || palette[index % palette.length];
      option.series.push({ name: s.name, type: "line", connectNulls: false, z: 3, showSymbol: !many, symbolSize: 7,
        symbol: ["circle", "rect", "triangle", "diamond"][index % 4], lineStyle: { width: 2, type: s.dashed ? "dashed" : "solid" }, itemStyle: { color: colour },
        data: chart.categories ? s.values : s.values.map(function (v, i) { return [chart.x[i], v]; }) });
      if (s.low) option.series.push(bandSeries(chart, s, colour));
    });
    if (chart.limit) option.series[0].markLine = limitLine(chart, c, "end");
    if (many) option.dataZoom = [{ type: "inside", zoomOnMouseWheel: "ctrl" }];
    return option;
  }

  function scatter(chart, c) {
    var kinds = [["chosen", "#d55e00", "circle", 15], ["Pareto front", "#0072b2", "diamond", 12], ["simulated", "#009e73", "triangle", 9], ["estimated only", "#8c8c8c", "circle", 5]];
    var option = base(c);
    var front = chart.points.filter(function (p) { return p[2] === 1; });
    var chosen = chart.points.filter(function (p) { return p[2] === 0; });
    option.grid.left = 38;
    option.grid.bottom = 34;
    option.xAxis = valueAxis(c, "s", "step time", { scale: true });
    var bytes = chart.points.map(function (p) { return p[1]; });
    option.yAxis = valueAxis(c, "memory", "memory of a device", Object.assign({ nameGap: 70 },
      bytes.length > 0 ? binaryAxis(Math.min.apply(null, bytes), Math.max.apply(null, bytes)) : {}));
    option.tooltip.formatter = function (at) {
      var p = at.value;
      return tip([p[3], seconds(p[0]) + ", " + formats.memory(p[1]), p[4]]);
    };
    option.dataZoom = [{ type: "inside", zoomOnMouseWheel: "ctrl" }, { type: "inside", yAxisIndex: 0, zoomOnMouseWheel: "ctrl" }];
    option.series = kinds.map(function (k, index) {
      return { name: k[0], type: "scatter", symbol: k[2], symbolSize: k[3], itemStyle: { color: k[1], opacity: index === 3 ? 0.6 : 1 }, z: 10 - index,
        data: chart.points.filter(function (p) { return p[2] === index; }) };
    });
    option.series.push({ name: "Pareto front", type: "line", symbol: "none", silent: true, lineStyle: { color: "#0072b2", type: "dashed" }, step: "end", z: 1,
      data: front.concat(chosen.filter(function (p) { return front.every(function (q) { return q[0] > p[0] || q[1] > p[1]; }); }))
        .sort(function (a, b) { return a[0] - b[0]; }).map(function (p) { return [p[0], p[1]]; }) });
    return option;
  }

  /* Light to dark, and the other way round on dark paper; readable in grey. */
  function ramp() { return isDark() ? ["#2a3440", "#1d6a8a", "#35b0ab", "#f3e79b"] : ["#e8eef2", "#7fc4c4", "#2878a8", "#2d1160"]; }

  function heat(chart, c, plot) {
    var option = base(c);
    var most = chart.cells.reduce(function (m, cell) { return Math.max(m, cell[2]); }, 0);
    var names = Array.from({ length: chart.size }, function (_, i) { return String(i); });
    plot.classList.add("tall");
    delete option.legend;
    var narrow = plot.clientWidth < 600;
    option.grid = { left: 40, right: narrow ? 14 : 90, top: 14, bottom: narrow ? 84 : 36, containLabel: true };
    option.xAxis = axis(c, { type: "category", data: names, name: "to " + chart.noun, nameLocation: "middle", splitArea: { show: false } });
    option.yAxis = axis(c, { type: "category", data: names, name: "from " + chart.noun, nameLocation: "middle", nameGap: 34, inverse: true });
    option.visualMap = Object.assign({ min: 0, max: most || 1, calculable: true, itemHeight: 160, itemWidth: 14, textStyle: { color: c.faint },
      formatter: formats.bytes, inRange: { color: ramp() } },
      narrow ? { orient: "horizontal", left: "center", bottom: 4 } : { orient: "vertical", right: 4, top: "middle" });
    option.tooltip.formatter = function (at) { return tip(["from " + at.value[1] + " to " + at.value[0], formats.bytes(at.value[2])]); };
    option.series = [{ type: "heatmap", data: chart.cells, itemStyle: { borderColor: c.paper, borderWidth: chart.size > 32 ? 0 : 1 } }];
    return option;
  }

  function loadColour(load) {
    if (!(load > 0)) return null;
    return load < 0.25 ? "#56b4e9" : load < 0.5 ? "#009e73" : load < 0.75 ? "#e69f00" : "#d55e00";
  }

  function graph(chart, c, plot) {
    var symbols = { device: "circle", host: "roundRect", device_switch: "diamond", nic: "triangle", "switch": "rect" };
    var tints = { device: "#0072b2", host: "#009e73", device_switch: "#cc79a7", nic: "#b5a800", "switch": "#8c8c8c" };
    var levels = {}, option = base(c);
    var width = plot.clientWidth, height;
    plot.classList.toggle("tall", chart.nodes.length > 12);
    height = plot.clientHeight;
    chart.nodes.forEach(function (n) { (levels[n[2]] = levels[n[2]] || []).push(n); });
    var heights = Object.keys(levels).map(Number).sort(function (a, b) { return b - a; });
    delete option.legend;
    option.tooltip.formatter = function (at) {
      if (at.dataType === "edge") {
        var l = at.data.link;
        return tip([(l[4] > 1 ? l[4] + " links, the busiest: " : "") + l[5], formats.rate(l[6]), formats.bytes(l[3]) + " a step, load " + formats.share(l[2])]);
      }
      return tip([at.data.title, at.data.kind]);
    };
    var crowd = Math.max.apply(null, heights.map(function (h) { return levels[h].length; }));
    option.series = [{ type: "graph", layout: "none", left: Math.min(90, width * 0.12), right: Math.min(90, width * 0.12), top: 40, bottom: 40, roam: "move", scaleLimit: { min: 0.5, max: 8 },
      data: chart.nodes.map(function (n) {
        var row = heights.indexOf(n[2]), peers = levels[n[2]];
        var place = peers.indexOf(n);
        var size = Math.max(6, Math.min(n[3] > 1 ? 30 : 20, (width - 60) / crowd * 0.7));
        return { x: (place + 0.5) / peers.length * width, y: heights.length > 1 ? row / (heights.length - 1) * height * 0.8 : 0, title: n[0],
          kind: n[1].replace("_", " "), symbol: symbols[n[1]] || "circle", symbolSize: n[1] === "switch" && peers.length < 6 ? [size * 2.4, size * 0.9] : size,
          itemStyle: { color: tints[n[1]] || "#8c8c8c" },
          label: { show: peers.length <= Math.max(1, width / 120), position: row === 0 ? "top" : "bottom", color: c.ink, backgroundColor: c.paper, padding: [1, 3], formatter: n[0], fontSize: 11, width: width / peers.length - 8, overflow: "truncate" } };
        /* The corners of the picture, so that few vertices in a row do not fill it. */
      }).concat([0, 1].map(function (corner) {
        return { x: corner * width, y: corner * height * 0.8, symbolSize: 0, silent: true, title: "", kind: "", tooltip: { show: false } };
      })),
      links: chart.links.map(function (l) {
        return { source: l[0], target: l[1], link: l, lineStyle: { color: loadColour(l[2]) || c.line, width: l[2] > 0 ? 1.5 + 4 * Math.min(1, l[2]) : 1, opacity: 0.9 } };
      }) }];
    return option;
  }

  /* ---- Timeline ------------------------------------------------------------------------------- */

  function timeline(chart, c, plot) {
    var option = base(c);
    var half = chart.measured ? 2 : 1;
    var rows = chart.lanes.length;
    plot.style.height = Math.min(1100, Math.max(260, rows * 13 * half + 110)) + "px";
    option.grid.top = 40;
    option.grid.bottom = 54;
    option.legend = undefined;
    option.xAxis = axis(c, { type: "value", min: 0, max: chart.length, axisLabel: { color: c.faint, hideOverlap: true, formatter: function (v) { return seconds(v / 1e6); } } });
    option.yAxis = axis(c, { type: "category", data: chart.lanes, inverse: true, axisLabel: { color: c.faint, fontSize: 11, width: plot.clientWidth < 500 ? 70 : 130, overflow: "truncate", interval: 0 } });
    option.dataZoom = [
      { type: "inside", xAxisIndex: 0, filterMode: "weakFilter", zoomOnMouseWheel: "ctrl", moveOnMouseMove: true, throttle: 40 },
      { type: "slider", xAxisIndex: 0, filterMode: "weakFilter", height: 18, bottom: 10, left: "14%", right: "8%", borderColor: c.line, textStyle: { color: c.faint }, showDataShadow: false, brushSelect: false,
        labelFormatter: function (v) { return seconds(v / 1e6); }, throttle: 40 },
    ];
    option.tooltip.formatter = function (at) {
      var v = at.value;
      var rowsOfText = [(chart.measured ? (v[1] ? "measured: " : "predicted: ") : "") + chart.names[v[3]] + (v[4] >= 0 ? ", micro-batch " + v[4] : ""),
        "rank " + chart.lanes[v[0]], seconds((v[7] - v[6]) / 1e6) + " from " + seconds(v[6] / 1e6) + " to " + seconds(v[7] / 1e6)];
      if (v[6] > v[5]) rowsOfText.push("waited " + seconds((v[6] - v[5]) / 1e6) + " before");
      if (v[8]) rowsOfText.push("on the critical path");
      rowsOfText.push("click to zoom to it");
      return tip(rowsOfText);
    };
    option.series = [{ type: "custom", data: chart.items, encode: { x: [5, 7], y: 0 }, dimensions: ["lane", "measured", "op", "name", "micro", "start", "ready", "end", "critical"],
      clip: true, progressive: 0,
      renderItem: function (params, api) {
        var lane = api.value(0), op = chart.ops[api.value(2)], area = params.coordSys;
        var slot = api.size([0, 1])[1], height = Math.max(2, slot * 0.8 / half);
        var top = api.coord([0, lane])[1] - slot * 0.4 + (api.value(1) ? height : 0);
        function bar(from, to, opacity, outlined) {
          var x = Math.max(area.x, api.coord([from, lane])[0]), end = Math.min(area.x + area.width, api.coord([to, lane])[0]);
          if (end < area.x || x > area.x + area.width || end < x) return null;
          return { type: "rect", shape: { x: x, y: top + 0.5, width: Math.max(0.6, end - x), height: Math.max(1, height - 1) },
            style: { fill: op[1], opacity: opacity, stroke: outlined ? c.ink : undefined, lineWidth: outlined ? 1.2 : 0 } };
        }
        var start = api.value(5), ready = api.value(6), end = api.value(7), parts = [];
        if (ready > start) parts.push(bar(start, ready, 0.2, false));
        parts.push(bar(ready, end, api.value(1) ? 0.75 : 1, api.value(8) === 1));
        return { type: "group", children: parts.filter(Boolean) };
      } }];
    return option;
  }

  /* Keys and clicks on the timeline; its legend is of elements, since one series has many colours. */
  function animateTimeline(chart, drawn, plot) {
    var from = 0, to = chart.length;
    function show(a, b) {
      var width = Math.min(chart.length, Math.max(chart.length / 1e5, b - a));
      from = Math.min(Math.max(0, a), chart.length - width);
      to = from + width;
      drawn.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, startValue: from, endValue: to });
    }
    drawn.on("dataZoom", function () {
      var zoom = drawn.getOption().dataZoom[0];
      from = zoom.startValue;
      to = zoom.endValue;
    });
    drawn.on("click", function (at) {
      var length = Math.max(at.value[7] - at.value[5], chart.length / 1e4);
      show(at.value[5] - length, at.value[7] + length);
    });
    plot.addEventListener("keydown", function (event) {
      var width = to - from, middle = (from + to) / 2;
      var moves = { ArrowLeft: [-0.25, 1], ArrowRight: [0.25, 1], "+": [0, 0.5], "=": [0, 0.5], "-": [0, 2], "0": [0, 1e9] };
      var move = moves[event.key];
      if (!move) return;
      event.preventDefault();
      show(middle + width * move[0] - width * move[1] / 2, middle + width * move[0] + width * move[1] / 2);
    });
    var legend = document.createElement("div");
    legend.className = "tools";
    [["Zoom in", 0.5], ["Zoom out", 2], ["Whole step", 1e9]].forEach(function (b) {
      var button = document.createElement("button");
      button.type = "button";
      button.textContent = b[0];
      button.addEventListener("click", function () {
        var middle = (from + to) / 2, width = (to - from) * b[1];
        show(middle - width / 2, middle + width / 2);
      });
      legend.appendChild(button);
    });
    plot.parentNode.insertBefore(legend, plot);
    legend.appendChild(makeLegend(chart.ops.filter(function (op) { return op[2]; }), ["pale: waiting", "outlined: critical path"]));
  }

  function makeLegend(pairs, words) {
    var list = document.createElement("ul");
    list.className = "legend";
    pairs.forEach(function (pair) {
      var item = document.createElement("li");
      var svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      var rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      [["width", 12], ["height", 12], ["aria-hidden", "true"]].forEach(function (a) { svg.setAttribute(a[0], a[1]); });
      [["width", 12], ["height", 12], ["fill", pair[1]]].forEach(function (a) { rect.setAttribute(a[0], a[1]); });
      svg.appendChild(rect);
      item.appendChild(svg);
      item.appendChild(document.createTextNode(pair[0]));
      list.appendChild(item);
    });
    words.forEach(function (word) {
      var item = document.createElement("li");
      item.className = "faint";
      item.textContent = word;
      list.appendChild(item);
    });
    return list;
  }

  function animateGraph(chart, drawn, plot) {
    plot.parentNode.insertBefore(makeLegend([["load below 25 %", "#56b4e9"], ["below 50 %", "#009e73"], ["below 75 %", "#e69f00"], ["75 % and more", "#d55e00"]],
      ["thin and grey: idle", "circles: devices", "squares: hosts, switches", "triangles: NICs"]), plot);
  }

  /* ---- Drawing -------------------------------------------------------------------------------- */

  var makers = { bars: bars, lines: lines, scatter: scatter, heat: heat, graph: graph, timeline: timeline };
  var animators = { timeline: animateTimeline, graph: animateGraph };
  var charts = [];

  /* A chart that cannot be drawn says so, and its table stays open. */
  function giveUp(entry, why) {
    var note = document.createElement("p");
    note.className = "over undrawn";
    note.textContent = "This chart could not be drawn (" + why + "). Its figures are in the table below.";
    entry.plot.parentNode.classList.remove("drawn");
    entry.plot.parentNode.replaceChild(note, entry.plot);
    openTables(note.parentNode, true);
  }
  function openTables(figure, isOpen) {
    figure.querySelectorAll(":scope > details").forEach(function (table) { table.open = isOpen; });
  }

  function draw(entry) {
    try {
      entry.drawn = library.init(entry.plot, null, { renderer: "canvas" });
      entry.drawn.setOption(makers[entry.chart.kind](entry.chart, colours(), entry.plot));
      entry.drawn.resize();
      if (animators[entry.chart.kind]) animators[entry.chart.kind](entry.chart, entry.drawn, entry.plot);
    } catch (error) {
      if (entry.drawn) entry.drawn.dispose();
      entry.drawn = null;
      giveUp(entry, error.message);
    }
  }
  redraw = function () {
    charts.forEach(function (entry) {
      if (entry.drawn) entry.drawn.setOption(makers[entry.chart.kind](entry.chart, colours(), entry.plot));
    });
  };

  /* All at once, wherever the reader is: what prints or photographs the page does not scroll. */
  document.querySelectorAll(".plot").forEach(function (plot) {
    var entry = { plot: plot, chart: data[plot.getAttribute("data-chart")], drawn: null };
    if (!entry.chart) return giveUp(entry, "the page has no figures of it");
    plot.parentNode.classList.add("drawn");
    openTables(plot.parentNode, false);
    draw(entry);
    charts.push(entry);
  });
  /* Fallback pictures that stand before their chart. */
  document.querySelectorAll(".fallback").forEach(function (plain) {
    var next = plain.nextElementSibling;
    if (next && next.classList.contains("drawn")) plain.hidden = true;
  });
  new ResizeObserver(function () {
    charts.forEach(function (entry) { if (entry.drawn) entry.drawn.resize(); });
  }).observe(document.body);
})();
