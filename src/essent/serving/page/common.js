
"use strict";
// What every section needs: elements, calls of the server, the models that were chosen, and what is typical of them.

const LEVELS = 21; // of shades, as in the style
const byId = (id) => document.getElementById(id);

/** An element. Texts become text nodes and never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const shown = (number, decimals = 2) => {
  const text = number.toFixed(decimals);
  return Number(text) === 0 ? (0).toFixed(decimals) : text.replace("-", "−");
};
const percent = (share) => `${shown(100 * share, 0)} %`;
const shadeOf = (share) => `h${Math.round(Math.min(Math.max(share, 0), 1) * (LEVELS - 1))}`;
const linesOf = (area) => area.value.split("\n").map((line) => line.trim()).filter(Boolean);

/** A box around something wide, which scrolls by itself, also by the keyboard. */
const scrolling = (name, content) => make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, content);

const panel = (title, about, ...content) =>
  make("figure", { class: "panel" }, make("figcaption", {}, make("h3", {}, title), about ? make("p", { class: "about" }, about) : null), ...content);

// -- the server ----------------------------------------------------------------------------------------------------

const KEY = "essent-key"; // in the storage of this tab
let key = sessionStorage.getItem(KEY) ?? "";

/** What a path answers to a body, or without one. Throws an Error that says what is wrong. */
async function call(path, body, signal) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const request = { headers, signal };
  if (body !== undefined) {
    headers["content-type"] = "application/json";
    Object.assign(request, { method: "POST", body: JSON.stringify(body) });
  }
  let response;
  try {
    response = await fetch(path, request);
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error("The server does not answer.");
  }
  const answer = await response.json().catch(() => ({}));
  if (response.status === 401) {
    byId("access").hidden = false;
    throw new Error(key ? "The server does not know this key." : "Give a key.");
  }
  if (!response.ok) throw new Error(answer.error?.message ?? `The server answered with ${response.status}.`);
  return answer;
}

/** Run the work of a section, of which the latest alone is shown; what goes wrong stands in the section's status. */
async function run(section, work) {
  const status = section.querySelector(".status");
  section.running?.abort();
  const running = (section.running = new AbortController());
  status.className = "status";
  status.textContent = "Computing …";
  try {
    const said = await work(running.signal);
    if (!running.signal.aborted) status.textContent = said;
  } catch (error) {
    if (running.signal.aborted) return;
    status.className = "status problem";
    status.textContent = error.message;
  }
}

// -- models --------------------------------------------------------------------------------------------------------

/** The names of the one or two models that are looked at. */
const chosenModels = () => [...new Set([byId("first").value, byId("second").value])].filter(Boolean);

/** What `work` gives for each of the models, one after the other. */
async function forEachModel(work) {
  const found = [];
  for (const model of chosenModels()) found.push(await work(model));
  return found;
}

/** Where a cosine lies between a model's unrelated texts (0) and equal ones (1). */
function nearness(cosine, typical) {
  const unrelated = typical.find((band) => band.pairs === "unrelated")?.median ?? 0;
  return (cosine - unrelated) / (1 - unrelated);
}

const typicalText = (typical) =>
  typical.length === 0
    ? ""
    : `Typical of this model: ${typical.map((band) => `${band.pairs} ${shown(band.median)} (${shown(band.low)} to ${shown(band.high)})`).join(", ")}.`;
