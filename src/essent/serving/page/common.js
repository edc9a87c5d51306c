
"use strict";
// Shared by all sections: elements, calls of the server, the selected models, and their typical cosines.

const LEVELS = 21; // of shades, as in the style
const byId = (id) => document.getElementById(id);

/** Create an element. Texts become text nodes, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const formatted = (number, decimals = 2) => {
  const text = number.toFixed(decimals);
  return Number(text) === 0 ? (0).toFixed(decimals) : text.replace("-", "−");
};
const percent = (share) => `${formatted(100 * share, 0)} %`;
const shadeOf = (share) => `h${Math.round(Math.min(Math.max(share, 0), 1) * (LEVELS - 1))}`;
const linesOf = (area) => area.value.split("\n").map((line) => line.trim()).filter(Boolean);

/** Create a box that scrolls wide content, also by keyboard. */
const scrolling = (name, content) => make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, content);

const panel = (title, note, ...content) =>
  make("figure", { class: "panel" }, make("figcaption", {}, make("h3", {}, title), note ? make("p", { class: "about" }, note) : null), ...content);

// -- the server ----------------------------------------------------------------------------------------------------

const KEY = "essent-key"; // in the storage of this tab
let key = sessionStorage.getItem(KEY) ?? "";

/** Return the response of a path to a body, or to GET. Throws an Error with the server's message. */
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

/** Run the work of a section, cancelling its previous work; errors are shown in the section's status. */
async function run(section, work) {
  const status = section.querySelector(".status");
  section.running?.abort();
  const running = (section.running = new AbortController());
  status.className = "status";
  status.textContent = "Computing …";
  try {
    const summary = await work(running.signal);
    if (!running.signal.aborted) status.textContent = summary;
  } catch (error) {
    if (running.signal.aborted) return;
    status.className = "status problem";
    status.textContent = error.message;
  }
}

// -- models --------------------------------------------------------------------------------------------------------

/** Return the names of the selected models, one or two. */
const chosenModels = () => [...new Set([byId("first").value, byId("second").value])].filter(Boolean);

/** Return the results of `work` for each selected model. */
async function forEachModel(work) {
  const results = [];
  for (const model of chosenModels()) results.push(await work(model));
  return results;
}

/** Scale a cosine so that unrelated texts of the model are at 0 and equal texts at 1. */
function nearness(cosine, typical) {
  const unrelated = typical.find((band) => band.pairs === "unrelated")?.median ?? 0;
  return (cosine - unrelated) / (1 - unrelated);
}

const typicalText = (typical) =>
  typical.length === 0
    ? ""
    : `Typical of this model: ${typical.map((band) => `${band.pairs} ${formatted(band.median)} (${formatted(band.low)} to ${formatted(band.high)})`).join(", ")}.`;
