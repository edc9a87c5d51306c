
// Sentences: how alike they are, and which of their words count.

const MOST_SENTENCES = 30; // all pairs are sent in one request
const MOST_EXPLAINED = 10; // every token takes a pass without it

async function showSentences() {
  const section = byId("sentences");
  await run(section, async (signal) => {
    const lines = linesOf(byId("lines"));
    if (lines.length === 0) throw new Error("Type a sentence.");
    const compared = lines.slice(0, MOST_SENTENCES);
    const heats = compared.length < 2 ? [] : await forEachModel((model) => heatOf(model, compared, signal));
    section.querySelector(".blocks").replaceChildren(...heats);
    const words = await forEachModel((model) => wordsOf(model, compared.slice(0, MOST_EXPLAINED), signal));
    section.querySelector(".blocks").append(...words);
    const note = lines.length > compared.length ? ` The first ${compared.length} are compared.` : "";
    return `${lines.length} ${lines.length === 1 ? "sentence" : "sentences"}.${note}`;
  });
}

async function heatOf(model, lines, signal) {
  const pairs = lines.flatMap((first, row) => lines.slice(row + 1).map((second) => [first, second]));
  const { scores, typical } = await call("compare", { model, pairs }, signal);
  const matrix = lines.map(() => lines.map(() => 1));
  let index = 0;
  for (let row = 0; row < lines.length; row += 1) {
    for (let column = row + 1; column < lines.length; column += 1, index += 1) matrix[row][column] = matrix[column][row] = scores[index];
  }
  const columns = lines.map((line, index) => make("th", { scope: "col", title: line }, `${index + 1}`));
  const rows = lines.map((line, row) =>
    make(
      "tr",
      {},
      make("th", { scope: "row", title: line }, make("div", {}, make("span", { class: "place" }, `${row + 1} `), line)),
      ...matrix[row].map((score) => make("td", { class: shadeOf(nearness(score, typical)) }, formatted(score))),
    ),
  );
  const head = make("thead", {}, make("tr", {}, make("td"), ...columns));
  const table = make("table", { class: lines.length > 8 ? "heat small" : "heat" }, head, make("tbody", {}, ...rows));
  const figure = panel(`Similarity, ${model}`, typicalText(typical), scrolling(`Similarity, ${model}`, table));
  figure.classList.toggle("wide", lines.length > 8);
  return figure;
}

async function wordsOf(model, lines, signal) {
  const by = byId("shade").value;
  const explained = [];
  for (const text of lines) explained.push((await call("explain", { model, text }, signal)).tokens);
  const note =
    explained.flat().every((token) => token[by] === null)
      ? "The weights of this recipe depend on more than the word: shade by how far the vector turns."
      : by === "impact"
        ? "1 − cosine between the sentence's vector and the one without the token; the highest of a sentence has the full shade."
        : "The token's share of all weights of its sentence; the highest has the full shade.";
  const lists = explained.map((tokens, index) => {
    const highest = Math.max(...tokens.map((token) => token[by] ?? 0), 1e-9);
    const items = tokens.map((token) => {
      const value = token[by];
      const kind = value === null ? "special" : shadeOf(value / highest);
      return make("li", { class: kind }, token.text.trim() || "␣", value === null ? null : make("small", {}, formatted(value, 3)));
    });
    return make("ol", { class: "tokens", "aria-label": `Sentence ${index + 1}` }, ...items);
  });
  return panel(`Words that count, ${model}`, note, ...lists);
}
