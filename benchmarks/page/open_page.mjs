// Open a page in headless Chromium: time until drawn, console, requests; checked also axe's violations, screenshots.
// Arguments: Chromium, page, "check" or "", prefix of the screenshots or "". NODE_MODULES has puppeteer-core and axe-core.
import { createRequire } from "node:module";
import { readFileSync, statSync } from "node:fs";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.NODE_MODULES + "/");
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [chromium, page, check, shots] = process.argv.slice(2);
const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
const result = { bytes: statSync(page).size, errors: [], requests: [], violations: {}, passes: Infinity };
const url = pathToFileURL(page).href;

// Everything is unfolded, so that axe sees what is hidden at first: 10 seconds of a quiet core.
async function audit(tab, view) {
  await tab.evaluate(() => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
  await tab.evaluate(axe);
  const found = await tab.evaluate(() => axe.run(document));
  result.passes = Math.min(result.passes, found.passes.length);
  result.violations[view] = found.violations.map((rule) => ({
    id: rule.id, impact: rule.impact, nodes: rule.nodes.length,
    first: rule.nodes[0].html.slice(0, 200), why: rule.nodes[0].failureSummary.slice(0, 300),
  }));
}

for (const [scheme, width] of [["light", 1440], ["dark", 1440], ["light", 390], ["dark", 390]]) {
  const view = `${scheme}-${width}`;
  const tab = await browser.newPage();
  tab.on("console", (line) => ["error", "warn"].includes(line.type()) && result.errors.push(line.text()));
  tab.on("pageerror", (error) => result.errors.push(String(error)));
  tab.on("request", (sent) => {
    if (sent.url() !== url && !sent.url().startsWith("data:")) result.requests.push(sent.url());
  });
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await tab.setViewport({ width, height: width === 390 ? 844 : 900, deviceScaleFactor: 1 });
  const begun = performance.now();
  await tab.goto(url, { waitUntil: "load" });
  const loaded = performance.now() - begun;
  await tab.waitForSelector("html[data-drawn]", { timeout: 60000 });
  result[view] = {
    load_ms: Math.round(loaded),
    drawn_ms: Math.round(performance.now() - begun),
    sideways: await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth),
  };
  result.figures = await tab.evaluate(() => document.querySelectorAll(".chart svg").length);
  if (shots) {
    await tab.screenshot({ path: `${shots}-${view}.png` });
    await tab.screenshot({ path: `${shots}-${view}-whole.png`, fullPage: true });
  }
  if (check) await audit(tab, view);
  await tab.close();
}
await browser.close();
console.log(JSON.stringify(result, null, 1));
