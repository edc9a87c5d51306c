"""The steps that write what comes out: the encoder, a static table and a graph, each with what it loses."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from essent._core import clock
from essent._core.atomic import require_replaceable
from essent.encoder.encoder import Encoder
from essent.engine.compiled import compile as compile_graph
from essent.engine.files import load as load_graph
from essent.errors import EngineError, InputError
from essent.improvement.context import Context
from essent.improvement.plan import ROUNDS, TIMED, Speed
from essent.improvement.steps import Found
from essent.improvement.yardstick import Evidence, agreement
from essent.recipe.recipe import Recipe
from essent.recipe.shaping.base import AffineShaper
from essent.static.distillation import Distilled, collect, make_encoder
from essent.static.gather import Settings as Passing
from essent.static.table import Choice, Material
from essent.tasks.duplicates import DuplicateTask
from essent.tasks.pairs import PairTask

ENCODER, STATIC, GRAPH = "encoder", "static", "graph"
SMALLER = (2, 4)  # the parts of the dimensions that smaller encoders and tables have
KEEPS = 0.98  # of a table's score, that a smaller one must keep to be taken for the goal size
SECTION = "## How it was made\n\n"


def encoder(context: Context, folder: Path) -> Found:
    """The best encoder: fitted, calibrated, saved, and smaller ones beside it."""
    choice = context.choice
    made = context.encoder(choice.recipe, choice.trained)
    calibrated = calibrate(context, made)
    place = context.journal.output / ENCODER
    save(context, made, place, calibrated)
    again = Encoder(str(place), device=str(made.device))
    evidence = {ENCODER: context.yardstick.measure(again)}
    evidence |= _smaller_encoders(context)
    losses = {name: agreement(evidence[ENCODER], one) for name, one in evidence.items()}
    about = {"recipe": choice.recipe, "trained": choice.trained is not None, "calibrated": calibrated}
    shape = {"dimensions": int(made.get_embedding_dimension() or 0), "agreement": losses}
    return {**about, **shape, "texts_per_second": speed(context, again), "bytes": size_of(place)}, evidence


def calibrate(context: Context, made: Encoder) -> str:
    """Calibrate an encoder on the texts, and on judged pairs where there are any; says what was done, or ""."""
    texts, score = list(context.given.texts[: context.plan["fitted"]]), context.settings.match_score
    pairs = [
        task
        for task in context.given.tasks
        if isinstance(task, DuplicateTask) or (isinstance(task, PairTask) and score is not None)
    ]
    own = pairs[0] if pairs else None
    try:
        made.calibrate(texts, own, match_score=score if isinstance(own, PairTask) else None, seed=context.settings.seed)
    except InputError as error:  # too few judged matches, or a similarity other than the cosine
        context.note(f"Similarities: {error}")
        if own is None or made.similarity_fn_name != "cosine":
            return ""
        made.calibrate(texts, seed=context.settings.seed)
    return str(made.calibration)


def save(context: Context, made: Encoder, place: Path, calibrated: str) -> None:
    """Write an encoder with a model card that says how it was made."""
    require_replaceable(place)
    made.model_card_data.model_name = f"essent/{place.name}-{made.recipe.digest()[:8]}"

    def finish(folder: Path, reason: str) -> None:
        made.write_card(folder, reason, name=made.model_card_data.model_name)
        card = folder / "README.md"
        if card.is_file():
            lines = "".join(f"- {line}\n" for line in history(context, calibrated))
            card.write_text(f"{card.read_text('utf-8').rstrip()}\n\n{SECTION}{lines}", encoding="utf-8")

    made.write_folder(place, "stock", finish)


def history(context: Context, calibrated: str) -> Iterator[str]:
    """How the encoder came about, for its card; without times, so that the same run writes the same card."""
    choice, given = context.choice, context.given
    yield f"`essent improve` on {len(given.texts):,} texts, measured by {context.yardstick.name}."
    for name in dict.fromkeys([context.plan["own"], choice.name]):
        value, low, high = context.scores().of(name)
        yield f"`{name}`: {value:.2f} [{low:.2f}, {high:.2f}]"
    if (tests := context.yardstick.test_scores(context.found)) is not None:
        value, low, high = tests.of(choice.name)
        yield f"On the test ({tests.by}): {value:.2f} [{low:.2f}, {high:.2f}]"
    if calibrated:
        yield f"Calibrated similarity: {calibrated}."


def _smaller_encoders(context: Context) -> dict[str, Evidence]:
    """Evidence of the best recipe with fewer dimensions: whitened components."""
    choice, found = context.choice, {}
    recipe = Recipe.parse(choice.recipe)
    dimensions = context.plan["dimensions"]
    if not context.journal.decision("encoder", lambda: {"smaller": _affords_smaller(context)})["smaller"]:
        return {}
    for part in SMALLER:
        kept = [step for step in recipe.shaping if step != "normalize" and not step.startswith("whiten")]
        shaping = (*kept, f"whiten:{dimensions // part}", "normalize")
        smaller = str(replace(recipe, shaping=shaping))
        if smaller != choice.recipe and dimensions // part >= 8:
            found[f"{dimensions // part} dimensions: {smaller}"] = context.yardstick.measure(
                context.encoder(smaller, choice.trained), tests=False
            )
    return found


def _affords_smaller(context: Context) -> bool:
    """Whether there is time to measure smaller encoders."""
    speed = Speed(**context.plan["speed"])
    each = speed.seconds * context.plan["fitted"] + speed.measured
    return not context.capabilities.only_static and len(SMALLER) * each < context.remaining / 3


# -- a static table ---------------------------------------------------------------------------------------------------


def static(context: Context, folder: Path) -> Found:
    """The best of some static tables that imitate the encoder, and smaller ones of it; one is saved."""
    source = Encoder(str(context.journal.output / ENCODER))
    texts = list(context.given.texts[: context.plan["distilled"]])
    how = Passing(unseen="alone" if context.plan["alone"] else "static", batch_size=context.settings.batch_size)
    plain, _ = collect(context.shell(context.choice.trained), texts, layers=["L"], teacher="mean", settings=how)
    materials = {"": plain, "taught by the encoder, ": taught(plain, source, texts)}
    choices = (Choice(), Choice(weights="sif:0.01", ridge=0.03), Choice(weights="sif:0.01", shaping="abtt:2"))
    made, evidence = {}, {}
    for teacher, material in materials.items():
        for choice in choices:
            name = f"static, {teacher}{choice}"
            made[name] = make_encoder(material, choice)
            evidence[name] = context.yardstick.measure(made[name].encoder, tests=False)
    scores = context.scores(evidence)
    alike = {name: agreement(context.found[ENCODER], one) for name, one in evidence.items()}
    best = max(made, key=lambda name: (round(scores.values[name], 1), alike[name]))
    smaller = dict(_smaller_tables(made[best], best))
    smaller = {best: made[best], **smaller}
    evidence = {name: context.yardstick.measure(one.encoder) for name, one in smaller.items()}
    scores = context.scores(evidence)
    enough = [one for one in smaller if scores.values[one] >= KEEPS * scores.values[best]]
    name = enough[-1] if context.settings.goal == "size" else best
    chosen = smaller[name].encoder
    calibrated = calibrate(context, chosen)
    place = context.journal.output / STATIC
    save(context, chosen, place, calibrated)
    again = Encoder(str(place), device="cpu")
    result = {
        "name": name,
        "tried": len(made),
        "dimensions": int(again.get_embedding_dimension() or 0),
        "agreement": {one: agreement(context.found[ENCODER], each) for one, each in evidence.items()},
        "texts_per_second": speed(context, again),
        "bytes": size_of(place),
    }
    return result, evidence


def taught(plain: Material, source: Encoder, texts: list[str]) -> Material:
    """The material of tables that imitate an encoder: its vectors, and the averages shaped as it shapes its own."""
    chain, tables = source.module.chain, dict(plain.contexts.tables)
    steps = []
    for step in chain.steps:
        if not isinstance(step, AffineShaper):
            break
        steps.append(step)
    if steps and len(steps) + 1 >= len(chain.steps):  # all but a last step, which makes unit length
        affine = type(chain)(steps).as_affine()
        assert affine is not None  # noqa: S101
        tables = {
            layer: ((table - affine.mean) @ affine.matrix + affine.offset).astype(np.float32)
            for layer, table in tables.items()
        }
    vectors = np.asarray(source.encode(texts, show_progress_bar=False), np.float32)
    if any(table.shape[1] != vectors.shape[1] for table in tables.values()):
        return plain
    return replace(plain, contexts=replace(plain.contexts, tables=tables), vectors=vectors, fits={})


def _smaller_tables(made: Distilled, name: str) -> Iterator[tuple[str, Distilled]]:
    """The same table with fewer bits, then with fewer dimensions too."""
    width = int(made.encoder.get_embedding_dimension() or 0)
    yield f"{name}, int8", make_encoder(made.material, made.choice, dtype="int8")
    for part in SMALLER:
        if width // part >= 8:
            smaller = make_encoder(made.material, made.choice, dimensions=width // part, dtype="int8")
            yield f"{name}, {width // part} dimensions, int8", smaller


# -- a graph ----------------------------------------------------------------------------------------------------------


def graph(context: Context, folder: Path) -> Found:
    """The encoder as one graph."""
    source = Encoder(str(context.journal.output / ENCODER), device="cpu")
    place = context.journal.output / GRAPH
    try:
        compile_graph(source, context.plan["engine"]).save(str(place))
    except EngineError as error:
        return {"why": f"no graph could be made: {error}"}, {}
    made = load_graph(str(place))
    evidence = {GRAPH: context.yardstick.measure(made)}
    result = {"name": GRAPH, "engine": context.plan["engine"], "texts_per_second": speed(context, made)}
    loss = {GRAPH: agreement(context.found[ENCODER], evidence[GRAPH])}
    return {**result, "agreement": loss, "bytes": size_of(place)}, evidence


# -- figures ----------------------------------------------------------------------------------------------------------


def speed(context: Context, encoder: Any) -> float:
    """Texts a second, the median of some rounds over held-out texts."""
    texts = list(context.given.held_out[:TIMED])
    encoder.encode(texts[:16], show_progress_bar=False)
    spent = []
    for _ in range(ROUNDS):
        began = clock.elapsed()
        encoder.encode(texts, show_progress_bar=False)
        spent.append(clock.elapsed() - began)
    return len(texts) / statistics.median(spent)


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
