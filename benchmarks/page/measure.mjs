// Open a page in headless Chromium: time to drawn, console errors, requests, axe's findings, screenshots.
// Arguments: Chromium, page, folder of the screenshots, name. Needs puppeteer-core and axe-core in NODE_PATH.
import { createRequire } from "node:module";
import { readFileSync, statSync } from "node:fs";
import { pathToFileURL } from "node:url";
const require = createRequire(process.env.NODE_MODULES + "/");
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [chromium, page, shots, name] = process.argv.slice(2);
const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
const result = { page: name, bytes: statSync(page).size, errors: [], requests: [], violations: {} };
const url = pathToFileURL(page).href;
for (const [scheme, width] of [["light", 1440], ["dark", 1440], ["light", 390], ["dark", 390]]) {
  const tab = await browser.newPage();
  tab.on("console", (line) => ["error", "warn"].includes(line.type()) && result.errors.push(line.text()));
  tab.on("pageerror", (error) => result.errors.push(String(error)));
  tab.on("request", (asked) => asked.url() !== url && !asked.url().startsWith("data:") && result.requests.push(asked.url()));
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await tab.setViewport({ width, height: 900, deviceScaleFactor: 1 });
  const begun = performance.now();
  await tab.goto(url, { waitUntil: "load" });
  const loaded = performance.now() - begun;
  await tab.waitForSelector("html[data-drawn]", { timeout: 60000 });
  result[`${scheme}-${width}`] = { load_ms: Math.round(loaded), drawn_ms: Math.round(performance.now() - begun),
    sideways: await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth) };
  await tab.bringToFront();
  await tab.evaluate(axe);
  const found = await tab.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  result.violations[`${scheme}-${width}`] = found.violations.map((v) => ({ id: v.id, impact: v.impact,
    nodes: v.nodes.length, first: v.nodes[0].html.slice(0, 160), why: v.nodes[0].failureSummary.slice(0, 240) }));
  if (shots) await tab.screenshot({ path: `${shots}/${name}-${scheme}-${width}.png`, fullPage: true });
  await tab.close();
}
await browser.close();
console.log(JSON.stringify(result, null, 1));
