"""A recipe as text, JSON and YAML: what is written is read back; what is wrong is shown."""

import hashlib
import json
import re
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from essent.errors import RecipeError, UnknownNameError
from essent.recipe.layers import parse_mix
from essent.recipe.named import NAMED, TEMPLATES
from essent.recipe.recipe import Recipe
from essent.recipe.weighting.base import weightings

EXAMPLES = [row.instance for row in NAMED.values()]

awkward = st.sampled_from(['"', "'", "|", "\\", " ", "=", ":", "#", "\n", "“", "é", "|| ", "[MASK]", "none"])
pieces = st.lists(st.characters(exclude_categories=["Cs"]) | awkward, max_size=15).map("".join)
templates = st.one_of(
    st.none(),
    st.sampled_from(sorted(TEMPLATES.values())),
    st.builds(lambda before, after: before + "{text}" + after, pieces, pieces).filter(lambda t: t.count("{text}") == 1),
)
factors = st.floats(allow_nan=False, allow_infinity=False)


def has_weight(mix: dict[str, float]) -> bool:
    return any(mix.values())


def as_terms(mix: dict[str, float]) -> tuple[tuple[str, float], ...]:
    return tuple(mix.items())


ensembles = st.dictionaries(templates.filter(bool), factors, min_size=2, max_size=3).filter(has_weight).map(as_terms)
sources = st.sampled_from(["0", "1", "7", "12", "L", "L-1", "L-3", "static", "random", "random:16,3"])
mixes = st.one_of(
    st.lists(sources, min_size=1, max_size=4, unique=True).map(lambda names: parse_mix("+".join(names))),
    st.dictionaries(sources, factors, min_size=1, max_size=4).filter(has_weight).map(as_terms),
)
weights = st.lists(
    st.sampled_from(sorted({*weightings} - {"ditto", "mask", "second"}))  # these need a head or a template
    | st.sampled_from(["ditto:1-10", "ditto:3-7"])
    | st.sampled_from(["sif:0.01", "remove:40"]),
    min_size=1,
    max_size=3,
).map(tuple)
reduces = st.sampled_from(["sum", "max", "power", "power:5", "dct", "dct:3"])
steps = st.lists(
    st.sampled_from(
        ["zscore", "centre", "whiten", "whiten:8", "abtt", "abtt:3", "quantile:seed=3", "normalize", "flow"]
    ),
    max_size=3,
).map(tuple)
recipes = st.builds(Recipe, templates, mixes, weights, reduces, steps) | st.builds(Recipe, ensembles, mixes)


@given(recipes, recipes)
@example(Recipe((("{text} is", -0.0), ("{text} means", 1.0))), Recipe())
def test_every_form_is_read_back(recipe: Recipe, other: Recipe) -> None:
    again = Recipe.parse(str(recipe))
    assert again == recipe
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert Recipe.from_dict(yaml.safe_load(yaml.safe_dump(recipe.to_dict()))) == recipe
    assert (hash(again), again.digest()) == (hash(recipe), recipe.digest())
    assert (recipe.digest() == other.digest()) == (recipe == other)


def test_digests_never_change() -> None:
    digests = {
        "mean": "f4713ed9cce87743",
        "ditto:1-10 | zscore": "91af6ed68b299e94",
        "t4-idf-quantile": "d0436e8940359998",
        "layers=0.3*0+0.7*L weights=idf*ditto:3-7 reduce=dct:3 | whiten:256 | normalize": "3b37cc45ee67b9c1",
    }
    assert {text: Recipe.parse(text).digest() for text in digests} == digests


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_named_recipe_reads_and_writes_itself(text: str) -> None:
    recipe = Recipe.parse(text)
    assert Recipe.parse(str(recipe)) == recipe
    assert Recipe.parse(NAMED[text.partition(":")[0]].text.format(text.partition(":")[2])) == recipe
    if not recipe.shaping:
        assert str(recipe) == text


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("mean", {}),
        ("first-last | zscore", {"layers": (("0", 0.5), ("L", 0.5)), "shaping": ("zscore",)}),
        ("  whitening|normalize ", {"layers": "0+L", "shaping": "whiten | normalize"}),
        ("layers=1.5*L+-0.5*random", {"layers": (("L", 1.5), ("random", -0.5))}),
        ("layers=0+L", {"layers": [(0, 0.5), ["L", np.float32(0.5)]]}),
        ("layers=00+010+L-03+L-0", {"layers": "0+10+L-3+L"}),
        ("template='a | b {text}'", {"template": "a | b {text}"}),
        (r'template="say \"{text}\" \\o/"', {"template": 'say "{text}" \\o/'}),
        ("template=T0 weights=mask layers=L-0-bias", {"template": "T0", "weights": "mask", "layers": "L-bias"}),
        ("prompt template=none weights=cls", {"template": "none", "weights": ("cls",), "shaping": ""}),
        ("weights=idf*ditto:1-10 reduce=dct", {"weights": "idf * ditto:1-10", "reduce": "dct:2"}),
        ("mean | abtt:2 | whiten:4,eps=0.1 | whiten:eps=0", {"shaping": ("abtt", "whiten:4,0.1", "whiten")}),
        ("mean | quantile:seed=0 | flow:2,seed=4", {"shaping": ("quantile", "flow:epochs=2,seed=4")}),
    ],
)
def test_texts_and_fields_give_the_same_recipe(text: str, fields: dict[str, Any]) -> None:
    recipe = Recipe(**fields)
    assert Recipe.parse(text) == Recipe.from_dict(fields) == recipe
    assert Recipe.parse(recipe) is recipe


def test_sums_of_templates() -> None:
    first, second = TEMPLATES["T0"], TEMPLATES["T4"]
    assert Recipe.parse("template=0.5*T0+0.5*T4 weights=mask") == Recipe.parse("template=T0+T4 weights=mask")
    contrast = Recipe("1*T0+-0.5*T4", weights="mask")
    assert contrast.template == contrast.terms == ((first, 1.0), (second, -0.5))
    assert str(contrast) == "template=1.0*T0+-0.5*T4 weights=mask"
    own = Recipe.parse("""template='2*"{text} means [MASK]"+1*T4' weights=mask""")
    assert own.template == (("{text} means [MASK]", 2.0), (second, 1.0))
    assert Recipe('"{text}"+"x"').template == '"{text}"+"x"'  # one template: the second has no slot
    assert len(Recipe.parse("metaeol").terms) == 8
    assert Recipe([("T0", 1), ("T4", -0.5)], weights="mask") == contrast
    with pytest.raises(RecipeError, match="a sum needs at least two templates"):
        Recipe([("T0", 0.5)], weights="mask")


def test_the_published_templates_are_byte_exact() -> None:
    written = "\n".join(f"{name}\t{template}" for name, template in TEMPLATES.items())
    assert hashlib.sha256(written.encode()).hexdigest()[:16] == "a9ccc37a300ef2da"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("maen", "Did you mean 'mean'"),
        ("weights=idff", "Did you mean 'idf'"),
        ("reduce=summ", "Did you mean 'sum'"),
        (
            "layers=statik",
            "unknown source 'statik'. Known: static, 0 … L, L-1, L-bias, value:L, attention:L, attention:L-out",
        ),
        ("wieghts=idf", "Did you mean 'weights'"),
        ("template=T0+T44", "Did you mean 'T4'"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(text: str, hint: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(hint)) as caught:
        Recipe.parse(text)
    assert isinstance(caught.value, UnknownNameError) == text.startswith(
        ("m", "f", "d", "weights", "reduce", "template")
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (" ", "' '"),
        (None, "A recipe is a text"),
        ("mean |", "empty step"),
        ("layers=0+", "cannot read"),
        ("layers=0+0", "'0' occurs twice"),
        ("layers=value:L+value:L-00", "'value:L' occurs twice"),
        ("layers=topk:0", "unknown source 'topk:0'. Known: static"),
        ("layers=attention:1-bias", "unknown source 'attention:1-bias'"),
        ("layers=topk:200", "needs weights=mask, not weights=uniform"),
        ("layers=0 layers=1", "'layers' occurs twice"),
        ("ditto", "needs a head, e.g. ditto:1-10"),
        ("ditto:0-3", "both counted from 1"),
        ("mean:3", "has no argument"),
        ("weights=mask", "needs a template with [MASK]"),
        ("template=T0+about weights=mask", "needs a template with [MASK]"),
        ("template=T0 weights=second", "needs a template that repeats the text, e.g. template=echo"),
        ("template=0.5*T0+T4", "give a finite weight to every term, or to none"),
        ("template=T0+T4 layers=L-bias weights=mask", "several templates"),
        ("template=echo layers=L-bias", "repeats the text"),
        ("template=T0+T4 weights=idf", "counts tokens for one template"),
        ("layers=L-bias", "this recipe has no template"),
        ("template='{text} and {text}'", "2 {text}"),
        ("layers=1e999*L", "give a finite weight"),
        ("reduce=power:0", "p must be an integer ≥ 1"),
        ("weights=sif:-1", "sif:-1 — a must be a positive number"),
        ("weights=sif:inf", "sif:inf — a must be a positive number"),
        ("weights=sif:a=b", "sif:b — a must be a positive number"),
        ("weights=remove:kinds=5", "remove:kinds=5 — unknown '5'"),
        ("layers=٣", "unknown source '٣'"),
        ("layers=0*L+0*1", "all weights are 0"),
        ("mean | flow:learning_rate=inf", "must be a number > 0"),
        ("mean | quantile:seed=-1", "seed must be an integer ≥ 0"),
        ("mean | flow:seed=5000000000", "seed must be below 4294967296, not 5000000000"),
        ("weights=remove:1.5", "integer ≥ 0"),
        ("weights=idf:3", "Arguments of 'idf': none"),
        ("mean | whiten:eps=-1", "eps must be a number ≥ 0, not -1"),
        ("mean | pca:0", "n_components must be an integer ≥ 1, not 0"),
        ("mean | flow:hidden=wide", "hidden must be an integer ≥ 1, not 'wide'"),
        ("mean | flow:learning_rate=0.0", "learning_rate=0.0 — must be a number > 0"),
        ('template="unclosed {text}', """not closed: '"unclosed {text}'"""),
        ('layers=3" | zscore', """not closed: '" | zscore'"""),
    ],
)
def test_a_malformed_recipe_shows_the_part_at_fault(text: str, part: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(part)):
        Recipe.parse(text)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1], "must be a mapping of template, layers"),
        ({"layer": "L"}, "Unknown recipe field 'layer'. Did you mean 'layers'"),
        ({"weights": []}, "needs at least one source"),
        (
            {"layers": ["0", "L"]},
            "Cannot read layers=['0', 'L']: give a text such as 'L' (the last layer), 'L-1' or '0+L'",
        ),
        ({"layers": [("L", True)]}, "pairs of a source and its weight"),
        ({"weights": ["idf", 1]}, "a list of such texts"),
        ({"reduce": None}, "Cannot read reduce=None: give a text such as 'sum'"),
        ({"shaping": 1}, "'zscore | normalize'"),
        ({"template": 3}, "the name of a template (T0, T1"),
    ],
)
def test_malformed_values_are_recipe_errors(values: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(message)):
        Recipe.from_dict(values)
