
// Small changes: how far the vector moves, compared with typical distances of this model.

async function showPairs() {
  const section = byId("pairs");
  await run(section, async (signal) => {
    const original = byId("original").value.trim();
    const changed = linesOf(byId("changed"));
    if (!original || changed.length === 0) throw new Error("Type an original and at least one changed sentence.");
    section.querySelector(".blocks").replaceChildren(...(await forEachModel((model) => changesOf(model, original, changed, signal))));
    return `${changed.length} ${changed.length === 1 ? "change" : "changes"}.`;
  });
}

async function changesOf(model, original, changed, signal) {
  const { scores, typical } = await call("compare", { model, pairs: changed.map((text) => [original, text]) }, signal);
  const widest = Math.max(...scores.map((score) => 1 - score), ...typical.map((band) => 1 - band.median), 1e-9) * 1.05;
  const rows = changed.map((text, index) => {
    const score = scores[index];
    const moved = make("i", { class: "moved" });
    moved.style.width = `${(100 * Math.max(1 - score, 0)) / widest}%`;
    const marks = typical.map((band) => {
      const mark = make("i", { class: "typical", title: band.pairs });
      mark.style.left = `${(100 * (1 - band.median)) / widest}%`;
      return mark;
    });
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, ...marked(original, text)),
      make("td", { class: "number" }, formatted(score, 3)),
      make("td", {}, likeness(score, typical), make("span", { class: "track", "aria-hidden": "true" }, moved, ...marks)),
    );
  });
  const headers = ["Changed", "Cosine", "Moved"].map((name, index) => make("th", { scope: "col", class: index === 1 ? "number" : "" }, name));
  const table = make("table", { class: "changes" }, make("thead", {}, make("tr", {}, ...headers)), make("tbody", {}, ...rows));
  const dashes = typical.length ? " Dashes in the bars: their middles, 1 − cosine." : "";
  return panel(`Moved, ${model}`, typicalText(typical) + dashes, scrolling(`Moved, ${model}`, table));
}

/** Describe a movement: its share of the distance to an unrelated text, and the kind of pairs with the nearest cosine. */
function likeness(score, typical) {
  if (typical.length === 0) return `${formatted(1 - score, 3)}`;
  const nearest = typical.reduce((best, band) => (Math.abs(band.median - score) < Math.abs(best.median - score) ? band : best));
  const same = typical.find((band) => band.pairs === "same meaning");
  const kinds = { unrelated: "like unrelated pairs", "alike in part": "like pairs alike in part", "same meaning": "like pairs of the same meaning" };
  const comparison = same && score > same.high ? "closer than most pairs of the same meaning" : kinds[nearest.pairs];
  return `${percent(1 - nearness(score, typical))} of the way to an unrelated text, ${comparison}`;
}

/** Mark new words of the changed text and strike out removed ones, by the longest common sequence of words. */
function marked(original, text) {
  const [before, after] = [original, text].map((words) => words.split(/\s+/));
  const common = Array.from({ length: before.length + 1 }, () => new Array(after.length + 1).fill(0));
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      common[i][j] = before[i] === after[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const parts = [];
  let [i, j] = [0, 0];
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      parts.push(after[j]);
      [i, j] = [i + 1, j + 1];
    } else if (i < before.length && (j === after.length || common[i + 1][j] >= common[i][j + 1])) {
      parts.push(make("del", {}, before[i]));
      i += 1;
    } else {
      parts.push(make("mark", {}, after[j]));
      j += 1;
    }
    parts.push(" ");
  }
  return parts;
}
