"""The rule by which a search without labels keeps a baseline, made of measured cases and checked on models left out.

python benchmarks/label_free_rule.py CASES.tsv [--write benchmarks/label_free_cases.tsv]

The cases are those of `benchmarks/criteria.py --cases`. Each rule is fitted on the similarity cases of all models but
one (or of all families but one) and decides on that one, for each in turn, between the first recipe of `teacher` and
`mean`. Printed: how often it is right, how many points it loses by being wrong (mean over the cases), its Brier score,
and the points lost on each model left out. Last MAX_LEVEL of `essent/selection/verdict.py`, the baseline's score by
`teacher` at which the regression of all cases is at one half, and what the choices gained over `mean` (TEACHER_CASES);
`--write` writes the cases with the probability by the rule of all other models.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

CASES = Path(__file__).parent / "label_free_cases.tsv"
COMPARING_KINDS = ("pairs", "duplicates")  # kinds of labels that compare two texts
THRESHOLD = 0.5  # minimum probability at which the first recipe is chosen
TRAINED = ("all-MiniLM-L6-v2", "e5-small-en")  # models that were trained for sentences

Rule = Callable[[pd.DataFrame, pd.DataFrame], np.ndarray]  # cases to learn from, cases to judge -> probabilities

RULES: dict[str, tuple[str, ...]] = {
    "lead": ("lead",),
    "lead in deviations": ("deviations",),
    "agreement of the witnesses": ("agreement",),
    "average cosine": ("alike",),
    "baseline's perturbed": ("base_perturbed",),
    "level": ("level",),
    "lead, level": ("lead", "level"),
    "level, agreement": ("level", "agreement"),
    "level, lead in deviations": ("level", "deviations"),
    "level, baseline's halves": ("level", "base_halves"),
}
JUDGES = ["halves", "perturbed", "length", "lexical", "neighbours"]


def read(path: Path) -> pd.DataFrame:
    """The cases, and whether a judge contradicts; cases of today have no columns of judges."""
    cases = pd.read_csv(path, sep="\t", comment="#")
    cases["family"] = np.where(cases["model"].str.startswith("e5"), "e5", "MiniLM")
    cases["contradicted"] = (cases.reindex(columns=JUDGES) < -1.96).any(axis=1)
    return cases


def fit(cases: pd.DataFrame, features: Sequence[str], weighted: bool = True) -> Pipeline:
    """Logistic regression of "labels say that the first recipe is better"; C = 1 on standardised features.

    Each case weighs as many points as it is about: small differences are noise, large ones are what a choice costs.
    """
    gain = cases["gain"].to_numpy()
    stake = np.abs(gain) / np.abs(gain).mean() if weighted else None
    made = make_pipeline(StandardScaler(), LogisticRegression())
    return made.fit(cases[list(features)].to_numpy(), gain > 0, logisticregression__sample_weight=stake)


def fitted(features: Sequence[str], weighted: bool = True) -> Rule:
    def rule(known: pd.DataFrame, new: pd.DataFrame) -> np.ndarray:
        made = fit(known.dropna(subset=features), features, weighted)
        chance: np.ndarray = made.predict_proba(new[list(features)].to_numpy())[:, 1]
        return chance

    return rule


def best_bound(known: pd.DataFrame, new: pd.DataFrame) -> np.ndarray:
    """The bound on the lead that loses the fewest points."""
    bounds = np.concatenate([[-np.inf], np.sort(known["lead"])])
    lost = [regret(known, known["lead"].to_numpy() > bound) for bound in bounds]
    return (new["lead"].to_numpy() > bounds[int(np.argmin(lost))]).astype(float)


FIXED: dict[str, Rule] = {
    "always the baseline": lambda _, new: np.zeros(len(new)),
    "always the first recipe": lambda _, new: np.ones(len(new)),
    "the old rule (lead 0.07 over mean, none contradicts)": lambda _, new: (
        (new["lead"] >= 0.07) & (new["deviations"] > 1.96) & ~new["contradicted"]
    ).to_numpy(float),
    "no witness contradicts": lambda _, new: (~new["contradicted"]).to_numpy(float),
    "a bound on the lead": best_bound,
    "the share of all cases": lambda known, new: np.full(len(new), (known["gain"] > 0).mean()),
    "level, all cases alike": fitted(("level",), weighted=False),
}


def losses(cases: pd.DataFrame, taken: np.ndarray) -> np.ndarray:
    """Points lost in each case against the better of the two."""
    gain = cases["gain"].to_numpy()
    return np.asarray(np.maximum(gain, 0) - np.where(taken, gain, 0))


def regret(cases: pd.DataFrame, taken: np.ndarray) -> float:
    """Points lost on average."""
    return float(losses(cases, taken).mean())


def spread_of(cases: pd.DataFrame, lost: np.ndarray, resamples: int = 1000) -> str:
    """95 % interval of a mean: models and data sets are drawn anew, as the cases of one of them go together."""
    parts = pd.Series(lost).groupby([cases["model"].to_numpy(), cases["data"].to_numpy()]).agg(["sum", "size"])
    drawn = parts.to_numpy()[np.random.default_rng(0).integers(len(parts), size=(resamples, len(parts)))].sum(axis=1)
    low, high = np.percentile(drawn[:, 0] / drawn[:, 1], [2.5, 97.5])
    return f"[{low:.2f}, {high:.2f}]"


def left_out(cases: pd.DataFrame, rule: Rule, group: str, known: pd.DataFrame | None = None) -> np.ndarray:
    """Probabilities of the cases of each model or family by the rule of all others; learned from `known` or them."""
    learned = cases if known is None else known
    found = np.empty(len(cases))
    for name in cases[group].unique():
        out = (cases[group] == name).to_numpy()
        found[out] = rule(learned[(learned[group] != name).to_numpy()], cases[out])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", type=Path, default=CASES)
    parser.add_argument("--write", type=Path, help="the cases with the probability by the rule of the other models")
    options = parser.parse_args()
    cases = read(options.cases)
    similarity = cases[cases["kind"].isin(COMPARING_KINDS)]
    compare("Similarity (pairs, duplicates), a model left out", similarity, "model")
    compare("Similarity, a family left out", similarity, "family")
    classes = cases[~cases["kind"].isin(COMPARING_KINDS)]
    compare("Classes and clusters by rules of similarity, a model left out", classes, "model", similarity)
    made = fit(similarity, ("level",))
    scaler, model = made[0], made[-1]
    level = scaler.mean_[0] - scaler.scale_[0] * model.intercept_[0] / model.coef_[0, 0]
    print(f"\nMAX_LEVEL = {level:.5f}")
    cases["left_out"] = left_out(cases, fitted(("level",)), "model", similarity).round(4)
    over_mean = cases[cases["baseline"] == "mean"]
    for (kind, trained), own in over_mean.groupby([over_mean["kind"], over_mean["model"].isin(TRAINED)]):
        gain = own["gain"].where(own["left_out"] >= THRESHOLD, 0.0)
        of_models = "trained for sentences" if trained else "not trained for sentences"
        print(f"{kind}, models {of_models}: {gain.mean():+.2f}, worse in {(gain < 0).sum()} of {len(gain)}")
    if options.write:
        said = [line for line in options.cases.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        table = cases.drop(columns=["contradicted", "family"]).to_csv(sep="\t", index=False, lineterminator="\n")
        options.write.write_text("".join(f"{line}\n" for line in said) + table, encoding="utf-8")


def compare(what: str, cases: pd.DataFrame, group: str, known: pd.DataFrame | None = None) -> None:
    """Print how each rule does on what is left out, on the cases over `mean`."""
    models, over_mean = cases["model"].unique(), (cases["baseline"] == "mean").to_numpy()
    shown = cases[over_mean]
    better = shown["gain"].to_numpy() > 0
    groups = cases.groupby(["model", "data"]).ngroups
    print(f"\n{what}: {len(cases)} cases, {groups} of model and data, {len(models)} models")
    print(f"over `mean`: {len(shown)}, of which better {better.mean():.0%}")
    print(f"{'rule':54}  right   lost [95 %]      Brier   lost on " + ", ".join(models))
    lost: dict[str, np.ndarray] = {}
    known_rules = {name: fitted(features) for name, features in RULES.items() if set(features) <= set(cases)}
    for name, rule in {**FIXED, **known_rules}.items():
        chance = left_out(cases, rule, group, known)[over_mean]
        taken = chance >= THRESHOLD
        each = [regret(shown[shown["model"] == model], taken[(shown["model"] == model).to_numpy()]) for model in models]
        lost[name] = losses(shown, taken)
        row = f"{(taken == better).mean():6.2f} {lost[name].mean():6.2f} {spread_of(shown, lost[name])}"
        row += f" {((chance - better) ** 2).mean():6.2f}   "
        print(f"{name:54} {row}" + ", ".join(f"{points:.2f}" for points in each))
    for other in ("the old rule (lead 0.07 over mean, none contradicts)", "always the first recipe"):
        less = lost["level"] - lost[other]
        print(f"level less {other}: {less.mean():+.2f} {spread_of(shown, less)}")


if __name__ == "__main__":
    main()
