
// The page when it is opened, and when models, theme or key change.

const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : system.matches);
const nameTheme = () => { byId("theme").textContent = isDark() ? "Light theme" : "Dark theme"; };

byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
system.addEventListener("change", nameTheme);

function fill(select, names, first = []) {
  select.replaceChildren(...[...first, ...names.map((name) => [name, name])].map(([value, text]) => make("option", { value }, text)));
}

async function showFacts() {
  const facts = await forEachModel(async (model) => {
    const description = await call(`recipe?${new URLSearchParams({ model })}`);
    const limit = description.max_tokens ? `, at most ${description.max_tokens.toLocaleString("en")} tokens` : "";
    return make("li", {}, `${model}: ${description.recipe}; ${description.dimensions} dimensions${limit}; ${description.engine}, ${description.precision}`);
  });
  byId("facts").replaceChildren(...facts);
}

async function showAll() {
  await Promise.all([showFacts(), showSentences(), showPairs()]);
}

async function start() {
  const { data } = await call("v1/models");
  const names = data.map((model) => model.id);
  byId("access").hidden = true;
  byId("problem").textContent = "";
  for (const part of [byId("models"), ...document.querySelectorAll("nav, main")]) part.hidden = false;
  fill(byId("first"), names);
  fill(byId("second"), names, [["", "none"]]);
  byId("second").disabled = names.length < 2;
  await showAll();
}

const begin = () => start().catch((error) => {
  byId("problem").textContent = error.message;
});

for (const [id, show] of [["sentences", showSentences], ["pairs", showPairs]]) {
  const form = byId(id).querySelector("form");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    show();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}
byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  key = byId("key").value;
  sessionStorage.setItem(KEY, key);
  begin();
});
for (const id of ["first", "second"]) byId(id).addEventListener("change", () => showAll().catch(() => {}));
byId("shade").addEventListener("change", showSentences);
nameTheme();
begin();
