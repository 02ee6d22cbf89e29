"use strict";
// node browse.js CHROMIUM [--quick] [--screenshots DIR] PAGE...
// Opens each page from disk in Chromium, at the width of a phone and of a desktop, in light and dark, in print, and
// without script; clicks every chart, tab, button and disclosure, moves every slider, and uses the keyboard on every chart.
// Prints one line for each thing that is wrong: a message on the console, a request, something wider than the
// window, a picture or button without a text, a chart that is not drawn when the page is loaded or has no table, and
// what axe-core calls serious or critical. Then one line "PAGE: N charts, N clicks, interactive after N ms": from the
// navigation until the page's script has run and all charts are drawn. Needs playwright-core and axe-core (package.json
// beside this file; found through NODE_PATH). --quick: all that of the first page; of the others the phone alone.
const path = require("path");
const { pathToFileURL } = require("url");
const fs = require("fs");
const { chromium } = require("playwright-core");

let axe = null;
try {
  axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
} catch (missing) {
  console.log("skipped: axe-core is not there");
}

const words = process.argv.slice(2);
const program = words.shift();
const quick = words[0] === "--quick";
if (quick) words.shift();
let pictures = null;
if (words[0] === "--screenshots") {
  words.shift();
  pictures = words.shift();
}

const PHONE = 375, DESKTOP = 1280, PAPER = 718; // CSS pixels; paper: A4 less margins of 10 mm
const faults = [];
function complainer(where) { return (what) => faults.push(where + ": " + what); }

// What has no text for those who do not see it.
function untitled() {
  const pictures = Array.from(document.querySelectorAll("img,svg,[role=img]")).filter((e) =>
    !(e.getAttribute("aria-label") || e.getAttribute("alt") || e.closest("[aria-label],[aria-hidden=true]")));
  const buttons = Array.from(document.querySelectorAll("button,a,summary,[role=tab]")).filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label")));
  return pictures.concat(buttons).map((e) => e.outerHTML.slice(0, 80));
}

// What sticks out of the window; boxes that scroll by themselves may be wider inside.
function tooWide() {
  if (document.documentElement.scrollWidth <= innerWidth) return [];
  return Array.from(document.querySelectorAll("body *"))
    .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll,pre"))
    .slice(0, 3).map((e) => e.outerHTML.slice(0, 80)).concat(document.documentElement.scrollWidth + " px");
}

// What is cut off at the right, though its box can be scrolled: on a phone nothing is.
function cutOff() {
  return Array.from(document.querySelectorAll(".scroll,pre,figcaption,.cards li"))
    .filter((e) => e.scrollWidth > e.clientWidth + 1)
    .slice(0, 3).map((e) => e.scrollWidth + " px in " + e.clientWidth + ": " + e.textContent.slice(0, 60));
}

function withoutTable() {
  return Array.from(document.querySelectorAll("figure.chart")).filter((f) => !f.querySelector("table")).map((f) => f.id);
}

// Charts without anything of a size in the drawing, or with a place that is no number.
function undrawn() {
  return Array.from(document.querySelectorAll(".plot")).filter((plot) => {
    const shapes = Array.from(plot.querySelectorAll("svg rect,svg path,svg circle,svg polygon,svg line")).filter((e) => !e.closest("defs"));
    const isSeen = (e) => { const box = e.getBoundingClientRect(); return box.width + box.height > 1; };
    return !shapes.some(isSeen) || /NaN|undefined|Infinity/.test(plot.innerHTML);
  }).map((plot) => plot.getAttribute("data-chart")).concat(Array.from(document.querySelectorAll(".undrawn")).map((e) => e.textContent));
}

// What axe-core finds that it calls serious or critical; the script is read from disk and put into the page.
async function checkAccess(seen) {
  if (!axe) return;
  await seen.tab.evaluate(axe);
  const found = await seen.tab.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const v of found.violations)
    if (v.impact === "serious" || v.impact === "critical")
      seen.complain("axe: " + v.id + " (" + v.impact + "), " + v.nodes.length + " times, as " + v.nodes[0].html.slice(0, 120));
}

async function open(browser, page, where, options) {
  const complain = complainer(where);
  const address = pathToFileURL(path.resolve(page)).href;
  const context = await browser.newContext(Object.assign({ viewport: { width: DESKTOP, height: 900 } }, options));
  const tab = await context.newPage();
  tab.on("console", (message) => complain("console: " + message.text()));
  tab.on("pageerror", (error) => complain("exception: " + error.message));
  tab.on("request", (request) => { if (request.url() !== address && !request.url().startsWith("data:")) complain("request: " + request.url()); });
  const started = Date.now();
  await tab.goto(address, { waitUntil: "load", timeout: 120000 });
  // Whoever photographs the page does not scroll: all charts are there when it is loaded.
  if (options.javaScriptEnabled !== false)
    for (const id of await tab.evaluate(undrawn)) complain("chart " + id + " is not drawn when the page is loaded");
  return { tab, context, complain, interactive: Date.now() - started };
}

// A person's clicks at several points of a chart, and the keys it knows.
async function useChart(seen, plot) {
  await plot.scrollIntoViewIfNeeded();
  const box = await plot.boundingBox();
  for (const [fx, fy] of [[0.3, 0.3], [0.5, 0.5], [0.7, 0.6], [0.4, 0.75], [0.5, 0.05]]) {
    await seen.tab.mouse.click(box.x + box.width * fx, box.y + box.height * fy);
  }
  await plot.focus();
  for (const key of ["ArrowRight", "ArrowLeft", "+", "-", "0"]) await seen.tab.keyboard.press(key);
}

// Every slider of a what-if, to its end and back: the figures next to it change with it.
async function useSliders(seen) {
  const state = () => seen.tab.locator(".sliders").evaluateAll((all) => all.map((e) => e.textContent).join());
  for (const slider of await seen.tab.locator("input[type=range]").all()) {
    const before = await state();
    await slider.focus();
    await seen.tab.keyboard.press("End");
    if (await state() === before) seen.complain("slider " + await slider.getAttribute("data-key") + " changes nothing");
    await seen.tab.keyboard.press("Home");
    if (await state() !== before) seen.complain("slider " + await slider.getAttribute("data-key") + " does not lead back");
  }
}

async function picture(seen, page, width, more) {
  if (!pictures) return;
  await seen.tab.evaluate(() => scrollTo(0, 0));
  await seen.tab.mouse.click(1, 1);
  await seen.tab.waitForTimeout(700); // tooltips go away
  await seen.tab.screenshot({ path: path.join(pictures, path.basename(page, ".html") + "-" + width + more + ".png"), fullPage: true });
}

// Every tab shows its own panel and hides the others.
async function useTabs(seen) {
  for (const tab of await seen.tab.locator("[role=tab]").all()) {
    const name = await tab.textContent();
    await tab.click();
    const shown = await seen.tab.locator("[role=tabpanel]:visible").evaluateAll((all) => all.map((e) => e.getAttribute("aria-label")));
    if (shown.length !== 1 || shown[0] !== name) seen.complain("tab " + name + " shows " + shown.join(", "));
  }
}

// In the dark and on paper only what is drawn differs: no clicks.
async function checkDarkAndPrint(browser, page) {
  const seen = await open(browser, page, path.basename(page) + " dark", { colorScheme: "dark" });
  await checkAccess(seen);
  const paper = await seen.tab.evaluate(() => getComputedStyle(document.body).backgroundColor);
  if (!/^rgb\((\d\d?), (\d\d?), (\d\d?)\)$/.test(paper)) seen.complain("the dark page is " + paper);
  await picture(seen, page, DESKTOP, "-dark");
  const complain = complainer(path.basename(page) + " in print");
  await seen.tab.setViewportSize({ width: PAPER, height: 1047 });
  await seen.tab.emulateMedia({ media: "print" });
  for (const e of await seen.tab.evaluate(tooWide)) complain("too wide: " + e);
  const pdf = await seen.tab.pdf({ format: "A4" });
  if (pdf.length < 10000) complain("the print has " + pdf.length + " bytes");
  await picture(seen, page, PAPER, "-print");
  await seen.context.close();
}

async function check(browser, page, width) {
  const where = path.basename(page) + " at " + width;
  const seen = await open(browser, page, where, { viewport: { width, height: 900 } });
  for (const e of await seen.tab.evaluate(untitled)) seen.complain("no text for " + e);
  for (const e of await seen.tab.evaluate(withoutTable)) seen.complain(e + " has no table");
  for (const e of await seen.tab.evaluate(tooWide)) seen.complain("too wide: " + e);
  await checkAccess(seen);
  const plots = await seen.tab.locator(".plot").all();
  for (const plot of plots) await useChart(seen, plot);
  await picture(seen, page, width, "");
  await useTabs(seen);
  await useSliders(seen);
  let clicks = 0;
  for (const one of await seen.tab.locator("button,summary").all()) {
    if (!await one.isVisible()) continue;
    await one.click();
    clicks++;
  }
  for (const e of await seen.tab.evaluate(untitled)) seen.complain("after clicks no text for " + e);
  for (const e of await seen.tab.evaluate(tooWide)) seen.complain("too wide after clicks: " + e);
  if (width === PHONE) for (const e of await seen.tab.evaluate(cutOff)) seen.complain("cut off: " + e);
  await seen.context.close();
  return { charts: plots.length, clicks, interactive: seen.interactive };
}

async function checkPlain(browser, page) {
  const seen = await open(browser, page, path.basename(page) + " without script", { javaScriptEnabled: false });
  if (!(await seen.tab.locator("noscript,body").first().innerText()).includes("JavaScript")) seen.complain("it does not say that it needs JavaScript");
  for (const width of [DESKTOP, PHONE]) {
    await seen.tab.setViewportSize({ width, height: 900 });
    for (const e of await seen.tab.evaluate(tooWide)) seen.complain("too wide at " + width + ": " + e);
  }
  await seen.context.close();
}

async function main() {
  const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox", "--disable-gpu"] });
  for (const page of words) {
    const seen = await check(browser, page, PHONE);
    if (!quick || page === words[0]) {
      await check(browser, page, DESKTOP);
      await checkDarkAndPrint(browser, page);
      await checkPlain(browser, page);
    }
    console.log(path.basename(page) + ": " + seen.charts + " charts, " + seen.clicks + " clicks, interactive after " + seen.interactive + " ms");
  }
  await browser.close();
}

main().catch((error) => faults.push(String(error))).then(() => {
  faults.forEach((fault) => console.log("fault: " + fault));
  process.exit(faults.length > 0 ? 1 : 0);
});
