"use strict";
(() => {
  const root = document.documentElement;
  const prefers = matchMedia("(prefers-color-scheme: dark)");
  const views = new Map();
  const dark = () => (root.dataset.theme || (prefers.matches ? "dark" : "light")) === "dark";

  // Vega draws with the page's colours: text, lines and paper follow the theme; data keep their colours.
  const themed = () => {
    const css = getComputedStyle(root);
    return ["--ink", "--soft", "--line"].map((name) => css.getPropertyValue(name).trim());
  };
  const config = ([ink, soft, line] = themed(), background = null) => {
    const words = { labelColor: soft, titleColor: soft, labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 };
    return {
      background, font: "system-ui, sans-serif", view: { stroke: null },
      axis: { ...words, gridColor: line, domainColor: line, tickColor: line },
      legend: { ...words, labelColor: ink }, text: { color: ink }, style: { ink: { fill: ink } },
    };
  };
  const loader = { load: () => Promise.reject(new Error("nothing is loaded")), sanitize: () => Promise.reject(new Error("no links")) };

  // On a phone, legends have two columns, names leave room for the bars, and figures in cells are left out.
  const fit = (part) => {
    if (!part || typeof part !== "object") return;
    if (part.layer) part.layer = part.layer.filter((layer) => layer.name !== "wide");
    if (part.legend?.columns) part.legend = { ...part.legend, columns: 2, labelLimit: 130 };
    if (part.axis?.labelLimit) part.axis.labelLimit = Math.min(part.axis.labelLimit, 130);
    for (const [key, inner] of Object.entries(part)) if (key !== "values") fit(inner);
  };

  async function draw(chart) {
    const spec = JSON.parse(document.getElementById(chart.dataset.spec).textContent);
    const kept = views.get(chart.id);
    if (kept) kept.finalize();
    const narrow = chart.clientWidth < 560;
    const settings = config();
    if (narrow) fit(spec);
    const result = await vegaEmbed(chart, spec, { actions: false, renderer: "svg", config: settings, loader, ast: false });
    // The text of marks repeats the table beneath; the figure has its own label.
    chart.querySelectorAll("[aria-roledescription]").forEach((part) => part.removeAttribute("aria-roledescription"));
    chart.querySelectorAll("[role]").forEach((part) => { part.removeAttribute("role"); part.removeAttribute("aria-label"); });
    const svg = chart.querySelector("svg");
    if (svg) svg.setAttribute("aria-hidden", "true");
    views.set(chart.id, result.view);
    zoomable(chart, result.view);
  }

  // Pictures are saved in light colours on white, as wide as on the page, but at least 700 pixels.
  async function save(chart, type) {
    const spec = JSON.parse(document.getElementById(chart.dataset.spec).textContent);
    const settings = { actions: false, config: config(["#1c2430", "#566070", "#e1e5ea"], "#fff"), loader, ast: false };
    const wide = { ...spec, width: Math.max(chart.clientWidth, 700), padding: 12 };
    const { view } = await vegaEmbed(document.createElement("div"), wide, settings);
    const link = document.createElement("a");
    link.href = await view.toImageURL(type, 2);
    link.download = `${chart.id.slice(6)}.${type}`;
    link.click();
    view.finalize();
  }

  function zoomable(chart, view) {
    const bar = document.querySelector(`.zoom[data-for="${chart.id.slice(6)}"]`);
    if (!bar) return;
    const whole = [view.signal("begin"), view.signal("finish")];
    const show = (begin, finish) => {
      const span = Math.min(Math.max(finish - begin, (whole[1] - whole[0]) / 5000), whole[1] - whole[0]);
      const from = Math.min(Math.max(begin, whole[0]), whole[1] - span);
      view.signal("begin", from).signal("finish", from + span).runAsync();
    };
    const by = (factor, at) => {
      const [begin, finish] = [view.signal("begin"), view.signal("finish")];
      const span = (finish - begin) * factor;
      show(begin + (finish - begin - span) * at, begin + (finish - begin - span) * at + span);
    };
    const move = (share) => {
      const [begin, finish] = [view.signal("begin"), view.signal("finish")];
      show(begin + (finish - begin) * share, finish + (finish - begin) * share);
    };
    const acts = { in: () => by(0.5, 0.5), out: () => by(2, 0.5), left: () => move(-0.4), right: () => move(0.4), all: () => show(...whole) };
    bar.onclick = (event) => acts[event.target.dataset.do]?.();
    const place = (event) => {
      const box = chart.getBoundingClientRect(), origin = view.origin();
      return Math.min(Math.max((event.clientX - box.left - origin[0]) / view.width(), 0), 1);
    };
    chart.onwheel = (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      by((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, place(event));
    };
    let held = null;
    chart.onpointerdown = (event) => { if (event.pointerType === "mouse") held = place(event); };
    chart.onpointermove = (event) => {
      if (held === null || !event.buttons) { held = null; return; }
      const now = place(event);
      move(held - now);
      held = now;
    };
    chart.onpointerup = () => { held = null; };
  }

  const charts = [...document.querySelectorAll(".chart")];
  // What is near the screen is drawn at once, the rest as it comes near, or when the page is idle or printed.
  const drawings = new Map();
  const once = (chart) => { if (!drawings.has(chart)) drawings.set(chart, draw(chart)); return drawings.get(chart); };
  if (charts.length && "IntersectionObserver" in window) {
    const watch = new IntersectionObserver((entries) => entries.forEach((entry) => {
      if (entry.isIntersecting) { watch.unobserve(entry.target); once(entry.target); }
    }), { rootMargin: "600px" });
    charts.forEach((chart) => watch.observe(chart));
    // A page that is never idle draws them all the same, half a second apart.
    const idle = (work) => window.requestIdleCallback ? requestIdleCallback(work, { timeout: 500 }) : setTimeout(work, 50);
    const rest = () => {
      const next = charts.find((chart) => !drawings.has(chart));
      if (next) once(next).finally(() => idle(rest));
      else Promise.all(drawings.values()).then(() => root.setAttribute("data-drawn", ""));
    };
    addEventListener("load", () => idle(rest));
  } else root.setAttribute("data-drawn", "");

  const again = () => [...drawings.keys()].forEach(draw);
  const theme = document.getElementById("theme");
  const name = () => { theme.textContent = dark() ? "light" : "dark"; theme.setAttribute("aria-label", `Switch to ${theme.textContent} colours`); };
  theme.hidden = false;
  name();
  theme.onclick = () => { root.dataset.theme = dark() ? "light" : "dark"; name(); again(); };
  prefers.addEventListener("change", () => { name(); again(); });

  document.querySelectorAll(".save").forEach((button) => {
    button.onclick = () => save(document.getElementById(`chart-${button.dataset.for}`), button.dataset.type);
  });

  document.querySelectorAll(".copy").forEach((button) => {
    button.onclick = async () => {
      const text = button.nextElementSibling.textContent;
      try { await navigator.clipboard.writeText(text); } catch {
        const range = document.createRange();
        range.selectNodeContents(button.nextElementSibling);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        document.execCommand("copy");
      }
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    };
  });

  // Paper shows every level of the ledger; the style sheet sets its colours.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll(".ledger details:not([open]), .check:not([open])")];
    closed.forEach((part) => { part.open = true; });
    charts.forEach(once);
  });
  addEventListener("afterprint", () => {
    closed.forEach((part) => { part.open = false; });
  });

  if ("IntersectionObserver" in window) {
    const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
    const mark = new IntersectionObserver((entries) => entries.forEach((entry) => {
      const link = links.get(entry.target.id);
      if (link && entry.isIntersecting) { links.forEach((other) => other.removeAttribute("aria-current")); link.setAttribute("aria-current", "true"); }
    }), { rootMargin: "-20% 0px -70% 0px" });
    document.querySelectorAll("section").forEach((section) => mark.observe(section));
  }
})();
