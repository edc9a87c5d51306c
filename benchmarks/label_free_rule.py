"""What choices by `teacher`, without labels, gain and lose over `mean` by labels, under several rules.

python benchmarks/label_free_rule.py [CASES.tsv]

The cases are those of `benchmarks/criteria.py --cases`: a model, a data set, a space, and the first recipe by
`teacher`. A rule chooses this recipe or retains `mean`. Printed, for each kind of labels, for models that were trained
for sentences and for others: points over `mean` on average and at worst, and in how many cases the choice is worse. The
fitted bound on the score of `mean` by `teacher` (a logistic regression of "labels prefer the first recipe", each case
weighted by its points) is applied to each model as fitted on the similarity cases of the others.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

CASES = Path(__file__).parent / "label_free_cases.tsv"
TRAINED = ("all-MiniLM-L6-v2", "e5-small-en")  # models that were trained for sentences
SIMILARITY = ("pairs", "duplicates")  # kinds of labels
SIGNIFICANT = 1.96  # standard deviations of the lead


def below_fitted_bound(cases: pd.DataFrame) -> np.ndarray:
    """Return whether the score of the baseline is below the bound that is fitted on all other models."""
    is_below, similarity = np.zeros(len(cases), dtype=bool), cases[cases["kind"].isin(SIMILARITY)]
    for model in cases["model"].unique():
        own, others = (cases["model"] == model).to_numpy(), similarity[similarity["model"] != model]
        stakes, regression = others["gain"].abs(), make_pipeline(StandardScaler(), LogisticRegression())
        regression.fit(others[["level"]].to_numpy(), others["gain"] > 0, logisticregression__sample_weight=stakes)
        is_below[own] = regression.predict(cases.loc[own, ["level"]].to_numpy())
    return is_below


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", type=Path, default=CASES)
    cases = pd.read_csv(parser.parse_args().cases, sep="\t", comment="#")
    significant = cases["deviations"] > SIGNIFICANT
    is_trained = cases["model"].isin(TRAINED)
    rules = {
        "always the first recipe": np.ones(len(cases), dtype=bool),
        "a significant lead": significant,
        "a fitted bound on the score of mean": below_fitted_bound(cases),
        "a significant lead, never on models trained for sentences": significant & ~is_trained,
    }
    kinds = cases["kind"].replace(dict.fromkeys(SIMILARITY, "similarity"))
    for (kind, trained), group in cases[cases["baseline"] == "mean"].groupby([kinds, is_trained]):
        print(f"\n{kind}, models {'trained' if trained else 'not trained'} for sentences, {len(group)} cases")
        for rule, chosen in rules.items():
            gain = group["gain"].where(chosen[group.index], 0.0)
            print(f"  {rule:58} {gain.mean():+5.2f} {gain.min():+7.2f}   worse in {(gain < 0).sum()}")


if __name__ == "__main__":
    main()
