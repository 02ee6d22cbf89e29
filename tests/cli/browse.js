"use strict";
// node browse.js CHROMIUM PROFILE-DIR [--screenshots DIR] PAGE...
// Opens each page from disk in headless Chromium, at the width of a phone and of a desktop, in light and dark;
// draws every chart, clicks every chart, tab, button and disclosure, and prints one line for each thing that is wrong:
// a message on the console, a request, something wider than the window, a picture without a text, a chart that
// was not drawn. Then one line "PAGE: N charts, N clicks, interactive after N ms". Talks to Chromium over its
// debugging pipe: no package needed.
const { spawn } = require("child_process");
const fs = require("fs");
const path = require("path");

const words = process.argv.slice(2);
const program = words.shift();
const profile = words.shift();
let pictures = null;
if (words[0] === "--screenshots") {
  words.shift();
  pictures = words.shift();
}

const browser = spawn(program, ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
  "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
  "--disable-features=NetworkTimeServiceQuerying", "--user-data-dir=" + profile, "--remote-debugging-pipe", "about:blank"],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
const waiting = new Map();
const listeners = [];
let last = 0, unread = "";
browser.stdio[4].setEncoding("utf8");
browser.stdio[4].on("data", (text) => {
  unread += text;
  for (let end; (end = unread.indexOf("\0")) >= 0;) {
    const message = JSON.parse(unread.slice(0, end));
    unread = unread.slice(end + 1);
    if (message.id) waiting.get(message.id)(message);
    else listeners.forEach((listener) => listener(message));
  }
});

let session;
function send(method, params) {
  return new Promise((resolve, reject) => {
    const id = ++last;
    waiting.set(id, (message) => (message.error ? reject(new Error(method + ": " + message.error.message)) : resolve(message.result)));
    browser.stdio[3].write(JSON.stringify({ id, method, params: params || {}, sessionId: session }) + "\0");
  });
}
function heard(method) {
  return new Promise((resolve) => {
    const listener = (message) => {
      if (message.method !== method) return;
      listeners.splice(listeners.indexOf(listener), 1);
      resolve(message.params);
    };
    listeners.push(listener);
  });
}
async function evaluate(expression) {
  const answer = await send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
  if (answer.exceptionDetails) throw new Error(answer.exceptionDetails.exception.description);
  return answer.result.value;
}
const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const faults = [];
let where = "";
function complain(what) { faults.push(where + ": " + what); }

listeners.push((message) => {
  const p = message.params;
  if (message.method === "Runtime.consoleAPICalled") complain("console: " + p.args.map((a) => a.value || a.description).join(" "));
  if (message.method === "Runtime.exceptionThrown") complain("exception: " + (p.exceptionDetails.exception || {}).description);
  if (message.method === "Log.entryAdded") complain("log: " + p.entry.text);
  if (message.method === "Network.requestWillBeSent" && !/^(file:|data:)/.test(p.request.url)) complain("request: " + p.request.url);
});

const untitled = `Array.from(document.querySelectorAll("img,svg,canvas,[role=img]")).filter((e) =>
  !(e.getAttribute("aria-label") || e.getAttribute("alt") || e.closest("[aria-label],[aria-hidden=true]"))).map((e) => e.outerHTML.slice(0, 80))`;
const tooWide = `document.documentElement.scrollWidth > innerWidth ? Array.from(document.querySelectorAll("body *")).filter((e) =>
  e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll,pre,.lanes")).slice(0, 3).map((e) => e.outerHTML.slice(0, 80)).concat(document.documentElement.scrollWidth + " px") : []`;

// Moves to a point and clicks it, so that tooltips and handlers run as for a person.
async function click(x, y) {
  for (const type of ["mouseMoved", "mousePressed", "mouseReleased"])
    await send("Input.dispatchMouseEvent", { type, x, y, button: type === "mouseMoved" ? "none" : "left", clickCount: type === "mouseMoved" ? 0 : 1 });
}

async function clickCharts() {
  const count = await evaluate(`document.querySelectorAll(".plot").length`);
  for (let i = 0; i < count; i++) {
    const box = await evaluate(`(() => { const e = document.querySelectorAll(".plot")[${i}]; e.scrollIntoView({ block: "center" });
      return new Promise((done) => setTimeout(() => { const r = e.getBoundingClientRect(), c = e.querySelector("canvas"); let ink = 0;
        if (c) { const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; for (let k = 3; k < d.length; k += 4) ink += d[k] > 0; }
        done({ id: e.dataset.chart, x: r.left, y: r.top, w: r.width, h: r.height, ink }); }, 150)); })()`);
    if (box.ink < 200) complain("chart " + box.id + " was not drawn");
    for (const [fx, fy] of [[0.3, 0.3], [0.5, 0.5], [0.7, 0.6], [0.4, 0.75], [0.5, 0.05]]) await click(box.x + box.w * fx, box.y + box.h * fy);
    for (const key of ["ArrowRight", "+", "-", "0"]) {
      await evaluate(`document.querySelectorAll(".plot")[${i}].focus()`);
      await send("Input.dispatchKeyEvent", { type: "keyDown", key });
      await send("Input.dispatchKeyEvent", { type: "keyUp", key });
    }
  }
  return count;
}

const clickElements = `(() => { const all = Array.from(document.querySelectorAll("button,summary")).filter((e) => e.offsetParent);
  all.forEach((e) => e.click()); return all.length; })()`;

async function check(page, width, dark, scripts) {
  where = path.basename(page) + " at " + width + (dark ? " dark" : "") + (scripts ? "" : " without script");
  await send("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: width < 500 });
  await send("Emulation.setEmulatedMedia", { media: "", features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }] });
  await send("Emulation.setScriptExecutionDisabled", { value: !scripts });
  const loaded = heard("Page.loadEventFired");
  const started = Date.now();
  await send("Page.navigate", { url: "file://" + page });
  await loaded;
  const interactive = Date.now() - started;
  if (!scripts) {
    const tables = await evaluate(`Array.from(document.querySelectorAll("figure.chart")).filter((f) => !f.querySelector("table") || !f.querySelector("details[open] table,table")).map((f) => f.id)`);
    tables.forEach((id) => complain(id + " has no table"));
    return null;
  }
  (await evaluate(untitled)).forEach((e) => complain("no text for " + e));
  (await evaluate(tooWide)).forEach((e) => complain("too wide: " + e));
  const charts = await clickCharts();
  if (pictures) await picture(page, width, dark);
  const clicks = await evaluate(clickElements);
  await rest(100);
  (await evaluate(tooWide)).forEach((e) => complain("too wide after clicks: " + e));
  return { charts, clicks, interactive };
}

async function picture(page, width, dark) {
  await evaluate(`scrollTo(0, 0)`);
  await click(1, 1);
  const height = await evaluate(`document.documentElement.scrollHeight`);
  const shot = await send("Page.captureScreenshot", { format: "png", captureBeyondViewport: true, clip: { x: 0, y: 0, width, height: Math.min(height, 12000), scale: 1 } });
  fs.writeFileSync(path.join(pictures, path.basename(page, ".html") + "-" + width + (dark ? "-dark" : "") + ".png"), Buffer.from(shot.data, "base64"));
}

async function main() {
  const target = (await send("Target.getTargets")).targetInfos.find((t) => t.type === "page");
  session = (await send("Target.attachToTarget", { targetId: target.targetId, flatten: true })).sessionId;
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await send(domain + ".enable");
  for (const page of words) {
    let seen = null;
    for (const [width, dark] of [[1280, false], [375, false], [1280, true]]) seen = (await check(path.resolve(page), width, dark, true)) || seen;
    await check(path.resolve(page), 1280, false, false);
    console.log(path.basename(page) + ": " + seen.charts + " charts, " + seen.clicks + " clicks, interactive after " + seen.interactive + " ms");
  }
}

main().catch((error) => complain(String(error))).then(() => {
  faults.forEach((fault) => console.log("fault: " + fault));
  browser.kill();
  process.exit(faults.length > 0 ? 1 : 0);
});
setTimeout(() => { console.log("fault: " + where + ": out of time"); browser.kill("SIGKILL"); process.exit(1); }, 240000).unref();
