"""Results and leaderboards for the tests of reports: made by the real tasks where that is quick."""

import numpy as np

from essent.recipe.recipe import Recipe
from essent.selection.leaderboard import Check, Leaderboard, Trial
from essent.tasks.comparison import Comparison
from essent.tasks.examples import SUBSETS, MinimalPair, Pair
from essent.tasks.geometry import GeometryTask
from essent.tasks.heros import HerosTask
from essent.tasks.pairs import PairTask
from essent.tasks.result import Result

HOSTILE = "<script>alert(1)</script>"
MODELS = ("/somewhere/models/tiny", "hub/base")


def encode(seed: int):
    rng, table = np.random.default_rng(seed), {}
    return lambda texts: np.array([table.setdefault(text, rng.standard_normal(4) + 1) for text in texts])


def named(result: Result, model: str = MODELS[0], recipe: str = "mean") -> Result:
    return result.with_provenance(model=model, recipe=recipe)


def scored(value: float | None, task: str = "stsb", model: str = MODELS[0], recipe: str = "mean", **beside) -> Result:
    """A result of one score; None is undefined."""
    score = float("nan") if value is None else value
    return named(Result(task, {"accuracy": {"all": score, **beside}}, {}, 10, main=("accuracy", "all")), model, recipe)


def heros(seed: int = 1) -> Result:
    rows = tuple(MinimalPair(f"o{i}", f"o{i}{subset}", subset) for i in range(6) for subset in SUBSETS)
    return HerosTask("heros", rows).run(encode(seed))


def geometry(seed: int = 2) -> Result:
    rows = tuple(Pair(f"a{i}", f"b{i}", 5.0) for i in range(8))
    return GeometryTask.of_pairs(PairTask("stsb", rows)).run(encode(seed))


def board(model: str = MODELS[0]) -> Leaderboard:
    """Three heads, five layers, two with layer 0; one score undefined; a check on other data."""
    recipes = """ditto:1-2 ditto:2-1 ditto:2-2 mean static layers=0 layers=1 layers=2
        layers=0+1 layers=0+2 first-last""".split()
    trials = [Trial(Recipe.parse(text), {"spearman": 80.0 - 3.5 * rank}) for rank, text in enumerate(recipes)]
    trials[0] = Trial(trials[0].recipe, trials[0].scores, (75.25, 84.5))
    trials[-1] = Trial(trials[-1].recipe, {"spearman": float("nan")})
    better = Comparison("ditto:1-2", "mean", 10.5, 5.0, 15.0, 0.002)
    check = Check("sickr", 9, {"ditto:1-2": (70.0, 65.5, 74.5), "mean": (60.0, 55.0, 65.0)}, (better,))
    provenance = {"model": model, "data": "stsb.dev", "space": "layers"}
    return Leaderboard("spearman", tuple(trials), ("mean",), (better,), (check,), ("A note.",), provenance)


def heads_board() -> Leaderboard:
    """144 heads and a baseline by a criterion whose numbers have three decimals."""
    recipes = [*(f"ditto:{layer}-{head}" for layer in range(1, 13) for head in range(1, 13)), "mean"]
    trials = [Trial(Recipe.parse(text), {"isotropy": rank / 400 - 0.9}) for rank, text in enumerate(recipes)]
    return Leaderboard("isotropy", tuple(trials), ("mean",))


def everything() -> tuple[list[Result], list[Leaderboard]]:
    results = []
    halves = [Pair(f"a{i}", f"b{i}", float(i % 6), "xy"[i % 2]) for i in range(12)]
    tasks = [PairTask("sts12", tuple(halves)), PairTask("stsb", tuple(pair._replace(subset=None) for pair in halves))]
    for model in MODELS:
        for seed, recipe in enumerate(("mean", "first-last | zscore")):
            of_recipe = [*(task.run(encode(seed)) for task in tasks), heros(seed), geometry(seed)]
            results += [named(result, model, recipe) for result in of_recipe]
            results.append(scored(70.0 + seed, "cr", model, recipe, low=68.0, high=73.5))
    return results, [board()]
