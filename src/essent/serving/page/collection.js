
// A collection: the texts that are nearest to one, and a map of all.

const WIDTH = 640;
const HEIGHT = 480;
const EDGE = 18;
const maps = new Map(); // model -> its map, while it is on the page

async function showCollection() {
  const section = byId("collection");
  const name = byId("which").value;
  maps.clear();
  await run(section, async (signal) => {
    byId("hits").replaceChildren();
    byId("maps").replaceChildren(...(await forEachModel((model) => mapOf(model, name, signal))));
    return "Type a text, or choose one on the map.";
  });
  if (byId("query").value.trim()) await showNearest();
}

async function showNearest() {
  const section = byId("collection");
  await run(section, async (signal) => {
    const [input, collection, k] = [byId("query").value.trim(), byId("which").value, Number(byId("count").value)];
    const found = await forEachModel(async (model) => {
      const answer = await ofModel(model, () => call("nearest", { model, collection, input, k }, signal));
      if (answer instanceof Element) return answer;
      maps.get(model)?.mark(answer);
      return hitsOf(answer);
    });
    byId("hits").replaceChildren(...found);
    return `The nearest texts to: ${input}`;
  });
}

/** What `work` gives; where one of two models has no vectors of the collection, a panel that says so. */
async function ofModel(model, work) {
  try {
    return await work();
  } catch (error) {
    if (error.name === "AbortError" || chosenModels().length === 1) throw error;
    return panel(model, error.message);
  }
}

function hitsOf({ model, hits, prompt }) {
  const items = hits.map(({ row, score, text }, place) =>
    make("li", { title: `Row ${row}` }, make("span", { class: "place" }, `${place + 1}`), make("b", { class: shadeOf(score) }, shown(score)), make("span", {}, text)),
  );
  const about = prompt ? `The model's prompt stands before the text: “${prompt.trim()}”.` : "";
  return panel(`Nearest, ${model}`, about, make("ol", { class: "hits" }, ...items));
}

async function mapOf(model, collection, signal) {
  const query = new URLSearchParams({ model, collection });
  const answer = await ofModel(model, () => call(`map?${query}`, undefined, signal));
  if (answer instanceof Element) return answer;
  const made = new TextMap(answer);
  maps.set(model, made);
  return made.panel;
}

/** Points that are reached by pointer and arrow keys; a table has them too. */
class TextMap {
  constructor({ model, texts, share, points }) {
    this.points = points;
    this.scale(points);
    this.svg = makeSvg("svg", {
      class: "map", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, tabindex: 0, role: "application", "aria-roledescription": "map",
      "aria-label": `Map of ${points.length} texts: arrow keys go from text to text, Enter finds the nearest ones.`,
    });
    this.layers = ["points", "found", "pointer"].map(() => this.svg.appendChild(makeSvg("g")));
    this.layers[0].append(...points.map((point) => this.circle(point, 3.5)));
    this.caption = make("p", { class: "caption", role: "status" }, "Point at a text, or go from one to the next with the arrow keys.");
    this.find = make("button", { type: "button" }, "Find the nearest to this text");
    this.find.hidden = true;
    this.find.addEventListener("click", () => this.ask());
    this.svg.addEventListener("pointermove", (event) => event.pointerType === "mouse" && this.choose(this.under(event)));
    this.svg.addEventListener("click", (event) => this.choose(this.under(event)));
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    const some = points.length < texts ? `${points.length.toLocaleString("en")} of ${texts.toLocaleString("en")} texts` : `${texts.toLocaleString("en")} texts`;
    const about = `${some} by two principal components, which hold ${percent(share)} of the variance: near on the map is not always near.`;
    const keys = [["s2", "a text"], ["s0", "one of the nearest"], ["s1", "the text that was typed"]];
    const key = make("ul", { class: "key" }, ...keys.map(([series, name]) => make("li", { class: series }, make("i"), name)));
    this.panel = panel(`Map, ${model}`, about, this.svg, key, this.caption, this.find, this.table(model));
  }

  /** The middle 99.5 % of the places fill the map; what lies beyond stands at its edge. */
  scale(points) {
    const ends = ["x", "y"].map((side) => {
      const sorted = points.map((point) => point[side]).sort((a, b) => a - b);
      const cut = Math.floor(sorted.length / 400);
      return [sorted[cut], sorted[sorted.length - 1 - cut]];
    });
    const spread = Math.max((ends[0][1] - ends[0][0]) / (WIDTH - 2 * EDGE), (ends[1][1] - ends[1][0]) / (HEIGHT - 2 * EDGE), 1e-9);
    const [x, y] = ends.map(([low, high]) => (low + high) / 2);
    const within = (value, most) => Math.min(Math.max(value, EDGE / 2), most - EDGE / 2);
    this.at = (point) => [within(WIDTH / 2 + (point.x - x) / spread, WIDTH), within(HEIGHT / 2 - (point.y - y) / spread, HEIGHT)];
  }

  circle(point, radius, attributes = {}) {
    const [cx, cy] = this.at(point);
    return makeSvg("circle", { cx, cy, r: radius, ...attributes });
  }

  under(event) {
    const box = this.svg.getBoundingClientRect();
    const [x, y] = [((event.clientX - box.left) * WIDTH) / box.width, ((event.clientY - box.top) * HEIGHT) / box.height];
    return this.closest((px, py) => Math.hypot(px - x, py - y));
  }

  /** The point of the least distance, which is infinite for those that do not count. */
  closest(distance) {
    const far = this.points.map((point) => distance(...this.at(point), point));
    const least = far.reduce((best, value, place) => (value < far[best] ? place : best), 0);
    return Number.isFinite(far[least]) ? this.points[least] : null;
  }

  choose(point) {
    if (!point || point === this.chosen) return;
    this.chosen = point;
    this.layers[2].replaceChildren(this.circle(point, 8, { class: "chosen" }));
    this.caption.textContent = `Row ${point.row}: ${point.text}`;
    this.find.hidden = false;
  }

  onKey(event) {
    if (event.key === "Enter" && this.chosen) this.ask();
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!way) return;
    event.preventDefault();
    if (!this.chosen) return this.choose(this.closest((x, y) => Math.hypot(x - WIDTH / 2, y - HEIGHT / 2)));
    const [x, y] = this.at(this.chosen);
    this.choose(this.closest((px, py) => {
      const along = (px - x) * way[0] + (py - y) * way[1];
      const aside = Math.abs((px - x) * way[1]) + Math.abs((py - y) * way[0]);
      return along > 0.01 && aside <= along ? along + 2 * aside : Infinity;
    }));
  }

  ask() {
    byId("query").value = this.chosen.text;
    showNearest();
  }

  /** Show the nearest texts by rank, also those that are no point of the map, and where the text itself lies. */
  mark({ hits, x: left, y: up }) {
    const found = hits.map((hit, rank) => {
      const group = makeSvg("g");
      const [x, y] = this.at(hit);
      group.append(this.circle(hit, 9, { class: "hit" }), makeSvg("text", { x, y }, `${rank + 1}`));
      return group;
    });
    const [x, y] = this.at({ x: left, y: up });
    const typed = makeSvg("path", { class: "asked", d: `M${x} ${y - 9}l9 9l-9 9l-9 -9z` });
    this.layers[1].replaceChildren(...found.reverse(), typed);
  }

  /** All points in a table, which is filled when it is opened. */
  table(model) {
    const body = make("tbody");
    const heads = ["Row", "Text", "x", "y"].map((name) => make("th", { scope: "col" }, name));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body);
    const details = make("details", {}, make("summary", {}, "The points as a table"), scrolling(`Points of the map, ${model}`, table));
    details.addEventListener("toggle", () => {
      if (!details.open || body.rows.length) return;
      const cells = ({ row, text, x, y }) => [make("td", { class: "number" }, `${row}`), make("th", { scope: "row" }, text), ...[x, y].map((value) => make("td", { class: "number" }, shown(value, 3)))];
      body.append(...this.points.map((point) => make("tr", {}, ...cells(point))));
    });
    return details;
  }
}
