"""Criteria without labels: formulas against plain loops, planted cases, what is drawn from which texts."""

from __future__ import annotations

import inspect
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from essent.errors import DataError, InputError, RecipeError, UnknownNameError
from essent.selection.combined import PseudoPairs, criteria, default_criterion
from essent.selection.criterion import area_under_curve, mean_rank, unit_ranks
from essent.selection.pseudo import (
    Lexicon,
    halves_of,
    neighbours_of,
    others,
    read_running_text,
    sentences_of,
    shortened,
    target_pairs,
    words_of,
)

ON_COSINES = [name for name in criteria if not criteria[name].reads_weights and name != "mean-rank"]
WORDS = 20


def topic_texts(count: int = 240, sentences: int = 1, seed: int = 0, each: int = 20) -> list[str]:
    """Texts of eight to fourteen words of one topic and some that all topics share; `each` texts in a row a topic."""
    rng = np.random.default_rng(seed)

    def sentence(topic: int) -> str:
        own = [f"t{topic}w{word}" for word in rng.integers(WORDS, size=rng.integers(6, 10))]
        shared = [f"the{word}" for word in rng.integers(4, size=rng.integers(2, 5))]
        return " ".join(rng.permutation([*own, *shared])).capitalize() + "."

    return [" ".join(sentence(number // each) for _ in range(sentences)) for number in range(count)]


def planted_cosines(pseudo: PseudoPairs, noises: list[float], seed: int = 1) -> np.ndarray:
    """Cosines (R,P) of recipes whose word vectors are those of the words' topics, under more and more noise by text.

    Shared words have a vector of their own, as function words do.
    """
    rng = np.random.default_rng(seed)
    topic = {f"t{t}": rng.normal(size=32) for t in range(240)} | {"the": rng.normal(size=32)}

    def meaning(text: str) -> np.ndarray:
        words = [word.lower().strip(".") for word in text.split()]
        return sum(topic[word.split("w")[0] if word[0] == "t" and word[1].isdigit() else "the"] for word in words)

    texts = list(dict.fromkeys([*pseudo.first, *pseudo.second]))
    place = {text: number for number, text in enumerate(texts)}
    clean = np.array([meaning(text) for text in texts])
    rows = []
    for noise in noises:
        vectors = clean + noise * np.linalg.norm(clean, axis=1, keepdims=True) * rng.normal(size=clean.shape) / 6
        units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        first, second = units[[place[t] for t in pseudo.first]], units[[place[t] for t in pseudo.second]]
        rows.append((first * second).sum(axis=1))
    return np.array(rows)


def random_case(name: str, recipes: int = 7, seed: int = 3) -> tuple[PseudoPairs, np.ndarray]:
    texts = topic_texts()
    pseudo = criteria.create(name).pairs(texts, list(itertools.pairwise(texts[:100])), seed)
    return pseudo, np.random.default_rng(seed).uniform(-1, 1, (recipes, len(pseudo))).round(2)  # with ties


# -- the registry -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(criteria))
def test_every_criterion_says_what_it_is_and_spells_itself(name: str) -> None:
    assert inspect.getdoc(criteria[name])
    spec = "mean-rank:length+halves" if name == "mean-rank" else name
    assert criteria.create(spec).spec() == spec
    assert criteria.create(criteria.create(spec).spec()) == criteria.create(spec)


def test_the_default_is_there_and_typing_errors_are_answered() -> None:
    assert criteria.create(default_criterion()).is_measured  # `trust` has cases of it
    with pytest.raises(UnknownNameError, match="'neighbours'"):
        criteria.create("neighbors")
    with pytest.raises(RecipeError, match="takes: running"):
        criteria.create("neighbours:a.txt,9,8,7")


@pytest.mark.parametrize(
    "spec",
    [
        "halves:0", "halves:size=2.5", "perturbed:1.5", "perturbed:share=x", "perturbed:negatives=0", "teacher:share=0",
        "teacher:lexical=-1", "mean-rank", "mean-rank:idf+length", "idf:kendall", "isotropy:size=-3", "lexical:x",
    ],
)  # fmt: skip
def test_bad_settings_are_refused_when_the_criterion_is_made(spec: str) -> None:
    with pytest.raises(RecipeError):
        criteria.create(spec)


# -- formulas against plain loops -------------------------------------------------------------------------------------


def test_the_area_under_the_curve_counts_couples() -> None:
    rng = np.random.default_rng(0)
    alike, unlike = rng.uniform(size=(300, 9)).round(1), rng.uniform(size=(300, 14)).round(1)
    slow = [np.mean([(a > b) + 0.5 * (a == b) for a in x for b in y]) for x, y in zip(alike, unlike, strict=True)]
    np.testing.assert_allclose(area_under_curve(alike, unlike), slow, atol=1e-12)


def test_unit_ranks_multiply_to_spearman() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(5, size=(2, 40)).astype(float)
    assert unit_ranks(a) @ unit_ranks(b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
    assert not unit_ranks(np.ones(4)).any()


def test_neighbours_score_is_the_area() -> None:
    pseudo, cosines = random_case("neighbours")
    expected = [stats.mannwhitneyu(row[pseudo.gold == 1], row[pseudo.gold == 0]).statistic for row in cosines]
    count = (pseudo.gold == 1).sum() * (pseudo.gold == 0).sum()
    np.testing.assert_allclose(criteria.create("neighbours").score(cosines, pseudo), np.array(expected) / count)


def test_perturbed_score_is_d_prime() -> None:
    pseudo, cosines = random_case("perturbed")
    expected = []
    for row in cosines:
        a = [c for c, g in zip(row, pseudo.gold, strict=True) if g == 1]
        b = [c for c, g in zip(row, pseudo.gold, strict=True) if g == 0]
        expected.append((np.mean(a) - np.mean(b)) / np.sqrt((np.var(a) + np.var(b)) / 2))
    np.testing.assert_allclose(criteria.create("perturbed").score(cosines, pseudo), expected)


def test_halves_score_counts_texts_whose_own_half_is_nearer() -> None:
    pseudo, cosines = random_case("halves")
    count = len(pseudo) // 2
    assert pseudo.first[:count] == pseudo.first[count:]  # the same half, against its own and against a near text's
    expected = [
        np.mean([(row[i] > row[count + i]) + 0.5 * (row[i] == row[count + i]) for i in range(count)]) for row in cosines
    ]
    np.testing.assert_allclose(criteria.create("halves").score(cosines, pseudo), expected)


def test_geometry_scores() -> None:
    pseudo, cosines = random_case("isotropy")
    np.testing.assert_allclose(criteria.create("isotropy").score(cosines, pseudo), [-np.mean(row) for row in cosines])
    distances = np.array([[2 - 2 * c for c in row] for row in cosines])  # ‖u−v‖² of unit vectors
    expected = [-np.log(np.mean([np.exp(-2 * d) for d in row])) for row in distances]
    np.testing.assert_allclose(criteria.create("uniformity").score(cosines, pseudo), expected)


def test_length_score_is_blind_to_the_sign() -> None:
    pseudo, cosines = random_case("length")
    apart = [-abs(len(a.split()) - len(b.split())) for a, b in zip(pseudo.first, pseudo.second, strict=True)]
    expected = [-abs(stats.spearmanr(row, apart).statistic) for row in cosines]
    np.testing.assert_allclose(criteria.create("length").score(cosines, pseudo), expected)
    np.testing.assert_allclose(criteria.create("length").score(-cosines, pseudo), expected)


def test_lexical_and_consensus_scores_are_correlations() -> None:
    pseudo, cosines = random_case("lexical")
    expected = [stats.spearmanr(row, pseudo.gold).statistic for row in cosines]
    np.testing.assert_allclose(criteria.create("lexical").score(cosines, pseudo), expected)
    standard = [(r - np.mean(r)) / np.std(r) for r in map(stats.rankdata, cosines)]
    mean = [np.mean([row[p] for row in standard]) for p in range(len(pseudo))]
    expected = [stats.pearsonr(stats.rankdata(row), mean).statistic for row in cosines]
    np.testing.assert_allclose(criteria.create("consensus").score(cosines, pseudo), expected)


def test_mean_rank_is_the_mean_of_ranks() -> None:
    scores = [np.array([0.1, 0.5, 0.3, np.nan]), np.array([2.0, 3.0, 3.0, 9.0])]
    np.testing.assert_allclose(mean_rank(scores), [1 / 3, 2.75 / 3, 2.25 / 3, np.nan])
    made = criteria.create("mean-rank:halves+length")
    pseudo = made.pairs(topic_texts(), [], 0)
    cosines = np.random.default_rng(0).uniform(-1, 1, (6, len(pseudo)))
    count = len(pseudo.parts[0])
    parts = [
        criteria.create("halves").score(cosines[:, :count], pseudo.parts[0]),
        criteria.create("length").score(cosines[:, count:], pseudo.parts[1]),
    ]
    np.testing.assert_allclose(made.score(cosines, pseudo), sum(stats.rankdata(part) for part in parts) / 12)


@pytest.mark.parametrize(("recipes", "teachers"), [(4, 2), (14, 5), (90, 9)])
def test_teacher_score_against_its_description(recipes: int, teachers: int) -> None:
    made = criteria.create("teacher")
    texts = topic_texts()
    pseudo = made.pairs(texts, list(itertools.pairwise(texts[:60])), 0)
    cosines = np.random.default_rng(recipes).uniform(-1, 1, (recipes, len(pseudo)))
    ends = np.cumsum([len(part) for part in pseudo.parts])
    pieces = np.split(cosines, ends[:-1], axis=1)
    places = np.zeros(recipes)
    for name, piece, part in zip(["halves", "perturbed", "length"], pieces, pseudo.parts, strict=False):
        places += stats.rankdata(criteria.create(name).score(piece, part))
    best = sorted(range(recipes), key=lambda r: (-places[r], r))[:teachers]
    own, lexical = pieces[3], pseudo.parts[3].gold

    def standard(values: np.ndarray) -> np.ndarray:
        return (values - np.mean(values)) / np.std(values)

    taught = standard(np.mean([standard(stats.rankdata(own[r])) for r in best], axis=0))
    gold = taught + 0.5 * standard(stats.rankdata(lexical))
    expected = [stats.pearsonr(stats.rankdata(row), gold).statistic for row in own]
    np.testing.assert_allclose(made.score(cosines, pseudo), expected, atol=1e-12)


@pytest.mark.parametrize(("kind", "measure"), [("pearson", stats.pearsonr), ("spearman", stats.spearmanr)])
def test_idf_reads_token_weights(kind: str, measure: object) -> None:
    rng = np.random.default_rng(0)
    weights, idf = rng.uniform(size=(5, 30)), rng.integers(6, size=30).astype(float)
    weights[3], weights[4, 0] = 0.5, np.nan
    made = criteria.create(f"idf:{kind}")
    assert made.reads_weights
    scores = made.weight_score(weights, idf)
    np.testing.assert_allclose(scores[:3], [measure(row, idf).statistic for row in weights[:3]])  # type: ignore[operator]
    assert np.isnan(scores[3:]).all()
    assert np.isnan(made.weight_score(weights, np.ones(30))).all()
    with pytest.raises(InputError, match=r"weights \(R,M\)"):
        made.weight_score(weights, idf[:4])
    with pytest.raises(InputError, match="token weights"):
        made.score(weights, made.pairs([], [], 0))
    with pytest.raises(InputError, match="not token weights"):
        criteria.create("halves").weight_score(weights, idf)


# -- planted cases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["neighbours", "halves", "perturbed", "teacher", "consensus", "lexical"])
def test_less_noise_scores_higher(name: str) -> None:
    made = criteria.create(name)
    pseudo = made.pairs(topic_texts(sentences=3, each=1 if name == "halves" else 20), [], 0)
    scores = made.score(planted_cosines(pseudo, [0.2, 1.5, 3.0, 9.0, 1.0, 2.0]), pseudo)
    assert np.argmax(scores) == 0
    assert np.argmin(scores) == 3
    assert stats.spearmanr(scores, [-0.2, -1.5, -3.0, -9.0, -1.0, -2.0]).statistic > 0.9


def test_a_majority_of_bad_recipes_misleads_the_consensus_and_not_the_teacher() -> None:
    texts = topic_texts(sentences=3)
    pairs = list(zip(texts[:220], texts[10:230], strict=True))  # one in two of one topic
    chosen = {}
    for name in ("consensus", "teacher"):
        made = criteria.create(name)
        pseudo = made.pairs(texts, pairs, 0)
        good = planted_cosines(pseudo, [0.8] * 5)
        letters = np.array([len(a) + len(b) for a, b in zip(pseudo.first, pseudo.second, strict=True)]) / 1000
        rng = np.random.default_rng(0)
        bad = letters + 0.001 * rng.normal(size=(30, len(pseudo)))  # all agree with each other on what means nothing
        chosen[name] = int(np.argmax(made.score(np.vstack([bad, good]), pseudo)))
    assert chosen["consensus"] < 30 <= chosen["teacher"]


def test_length_finds_the_recipe_that_follows_it() -> None:
    made = criteria.create("length")
    pseudo = made.pairs([f"{'a ' * (n % 17)}text number {n}" for n in range(300)], [], 0)
    rng = np.random.default_rng(0)
    by_length = pseudo.gold / 20 + 0.01 * rng.normal(size=len(pseudo))
    assert np.argmin(made.score(np.stack([rng.uniform(size=len(pseudo)), by_length]), pseudo)) == 1


# -- recipes without a score ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ON_COSINES)
def test_undefined_recipes_score_nan_and_leave_the_others_alone(name: str) -> None:
    made = criteria.create(name)
    pseudo, cosines = random_case(name, 14)
    alone = made.score(cosines, pseudo)
    assert np.isfinite(alone).all()
    broken = np.insert(cosines, [0, 3], 0.0, axis=0)
    broken[0, 1] = np.nan
    broken[4] = 0.9 + 1e-7 * np.random.default_rng(0).uniform(size=len(pseudo))  # constant but for rounding
    scores = made.score(broken, pseudo)
    assert np.isnan(scores[[0, 4]]).all()
    np.testing.assert_allclose(np.delete(scores, [0, 4]), alone, atol=1e-12)
    assert np.isnan(made.score(broken[[0, 4]], pseudo)).all()
    assert made.score(cosines[:1].astype(np.float32), pseudo).shape == (1,)
    assert made.score(cosines[:0], pseudo).shape == (0,)
    with pytest.raises(InputError, match=rf"\(R,{len(pseudo)}\)"):
        made.score(cosines[:, 1:], pseudo)


def test_pairs_of_another_criterion_are_refused() -> None:
    pseudo, cosines = random_case("isotropy")
    with pytest.raises(InputError, match="own `pairs`"):
        criteria.create("lexical").score(cosines, pseudo)


# -- what is drawn ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ON_COSINES)
def test_the_seed_decides_what_is_drawn(name: str) -> None:
    texts = topic_texts()
    made = criteria.create(name)
    first, again, other = (made.pairs(texts, [], seed) for seed in (0, 0, 1))
    assert (first.first, first.second) == (again.first, again.second)
    assert first.first != other.first
    assert len(first.first) == len(first.second) == len(first)


@pytest.mark.parametrize("name", ON_COSINES)
@pytest.mark.parametrize(
    "texts", [[], [""], ["one"], ["one two three four five six"] * 50, ["", "  "] * 20], ids=lambda t: str(len(t))
)
def test_too_few_texts_are_said(name: str, texts: list[str]) -> None:
    with pytest.raises(InputError, match=r"at least 8 .* needed, there are \d"):
        criteria.create(name).pairs(texts, [], 0)


@pytest.mark.parametrize("name", ON_COSINES)
def test_odd_texts_are_passed_over(name: str) -> None:
    odd = ["", " ", "one", "one", "\n", "…", *topic_texts(12), *topic_texts(12), "", "two words"]
    pseudo = criteria.create(name).pairs(odd, [("", "a"), ("b", " ")], 0)
    assert all(text.strip() for text in [*pseudo.first, *pseudo.second])
    assert len(pseudo) >= 6


def test_numbers_are_bounded() -> None:
    texts = topic_texts(400)
    assert len(criteria.create("halves:size=20").pairs(texts, [], 0)) == 40
    assert len(criteria.create("perturbed:size=20,negatives=3").pairs(texts, [], 0)) == 80
    assert len(criteria.create("lexical:30").pairs(texts, [(t, t) for t in texts], 0)) == 30
    assert len(criteria.create("lexical:30").pairs(texts, [], 0)) <= 30
    assert len(criteria.create("isotropy:25").pairs(texts, [], 0)) == 25


def test_the_users_pairs_are_used_where_there_are_enough() -> None:
    texts = topic_texts()
    given = list(zip(texts[:50], texts[60:110], strict=True))
    for name in ("lexical", "consensus"):
        pseudo = criteria.create(name).pairs(texts, given, 5)
        assert list(zip(pseudo.first, pseudo.second, strict=True)) == given
    assert set(target_pairs(texts, given[:3], 60, np.random.default_rng(0))).isdisjoint(given[:3])
    for none in ([], ["", " "]):  # then the texts are those of the pairs
        alone = criteria.create("teacher").pairs(none, given, 0)
        assert set(alone.first) & set(texts) <= {text for pair in given for text in pair}


def test_without_pairs_near_ones_are_among_those_looked_at() -> None:
    texts = topic_texts()
    made = target_pairs(texts, [], 90, np.random.default_rng(0))
    lexical = Lexicon(texts).cosines([a for a, _ in made], [b for _, b in made])
    third = len(made) // 3
    assert lexical[:third].mean() > lexical[-third:].mean() + 0.2
    assert all(a != b for a, b in made)


def test_halves_share_no_word_and_lose_none() -> None:
    rng = np.random.default_rng(0)
    for text in ("one two  three four five", "eins zwei drei vier"):
        first, second = halves_of(text, rng)
        assert sorted(first.split() + second.split()) == sorted(text.split())
        assert abs(len(first.split()) - len(second.split())) <= 1
        order = [text.split().index(word) for word in first.split()]
        assert order == sorted(order)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.99])
def test_a_shortened_text_loses_its_share(share: float) -> None:
    text = " ".join(f"w{n}" for n in range(10))
    kept = shortened(text, share, np.random.default_rng(0)).split()
    assert len(kept) == 10 - min(max(1, round(10 * share)), 9)
    assert kept == sorted(kept, key=lambda word: int(word[1:]))


def test_scripts_without_spaces_are_taken_letter_by_letter() -> None:
    assert words_of("今天天气很好。") == ["今", "天", "天", "气", "很", "好", "。"]
    assert "".join(words_of("GPU で  計算 する")) == "GPU で  計算 する"
    texts = [f"今天第{n}次天气很好我们去公园{n * 7}散步" for n in range(30)]
    assert len(criteria.create("halves").pairs(texts, [], 0)) == 60
    assert sentences_of("今天天气很好。我们去公园散步吧。") == ["今天天气很好。", "我们去公园散步吧。"]


@pytest.mark.parametrize(("count", "each"), [(1, 3), (2, 1), (9, 8), (10, 8), (40, 5), (41, 5), (7, 6)])
def test_others_are_others_and_stay_in_small_groups(count: int, each: int) -> None:
    found = others(count, each)
    assert all(i != j and 0 <= j < count for i, j in found)
    assert {i for i, _ in found} == (set(range(count)) if count > 1 else set())
    joined = coo_array((np.ones(len(found)), tuple(np.array(found).reshape(-1, 2).T)), shape=(count, count))
    assert np.bincount(connected_components(joined, directed=False)[1]).max() <= each + 2


@pytest.mark.parametrize(("name", "most"), [("perturbed", 14), ("neighbours", 20), ("isotropy", 2), ("length", 2)])
def test_pairs_come_in_small_groups_of_texts(name: str, most: int) -> None:
    """A pass in portions then encodes each text once."""
    pseudo = criteria.create(name).pairs(topic_texts(400, sentences=3), [], 0)
    place: dict[str, int] = {}
    ends = [[place.setdefault(t, len(place)) for t in pair] for pair in zip(pseudo.first, pseudo.second, strict=True)]
    joined = coo_array((np.ones(len(ends)), tuple(np.array(ends).T)), shape=(len(place), len(place)))
    assert np.bincount(connected_components(joined, directed=False)[1]).max() <= most


# -- running text -----------------------------------------------------------------------------------------------------


def test_sentences_and_their_neighbours() -> None:
    text = (
        'The first one is a sentence. "It is quoted here, too." Then comes e. g. the last of them! Short. '
        "And one more to end with?"
    )
    assert sentences_of(text) == [
        "The first one is a sentence.",
        '"It is quoted here, too."',
        "Then comes e. g. the last of them!",
        "",
        "And one more to end with?",
    ]
    assert neighbours_of([text, text, ""]) == [
        ("The first one is a sentence.", '"It is quoted here, too."'),
        ('"It is quoted here, too."', "Then comes e. g. the last of them!"),
    ]


def test_neighbours_are_positive_and_others_negative() -> None:
    texts = topic_texts(120, sentences=3)
    pseudo = criteria.create("neighbours").pairs(texts, [], 0)
    beside = set(neighbours_of(texts))
    pairs = list(zip(pseudo.first, pseudo.second, strict=True))
    assert all((pair in beside) == (gold == 1) for pair, gold in zip(pairs, pseudo.gold, strict=True))
    assert (pseudo.gold == 0).sum() > 5 * (pseudo.gold == 1).sum()


def test_single_sentences_are_neighbours_of_the_next() -> None:
    texts = topic_texts(50)
    pseudo = criteria.create("neighbours").pairs(texts, [], 0)
    positive = {(a, b) for a, b, gold in zip(pseudo.first, pseudo.second, pseudo.gold, strict=True) if gold == 1}
    assert positive < set(itertools.pairwise(texts))
    assert len(positive) > 15
    assert len({text for pair in positive for text in pair}) == 2 * len(positive)
    with pytest.raises(InputError, match="alike"):
        criteria.create("neighbours").pairs(["a b", "c d"] * 20, [], 0)


def test_running_text_comes_from_a_file(tmp_path: Path) -> None:
    texts = topic_texts(120, sentences=3)
    (tmp_path / "corpus.txt").write_text("\n".join(texts), encoding="utf-8")
    rows = "\n".join(json.dumps({"text": text}) for text in texts)
    (tmp_path / "corpus.jsonl").write_text(rows, encoding="utf-8")
    assert read_running_text(str(tmp_path / "corpus.txt")) == read_running_text(str(tmp_path / "corpus.jsonl")) == texts
    elsewhere = topic_texts(30, seed=9)
    from_file = criteria.create(f"neighbours:{tmp_path / 'corpus.jsonl'}").pairs(elsewhere, [], 0)
    assert from_file.first == criteria.create("neighbours").pairs(texts, [], 0).first
    teacher = criteria.create(f"teacher:{tmp_path / 'corpus.txt'}").pairs(elsewhere, [], 0)
    assert len(teacher.parts) == 3
    assert "neighbours, length" in teacher.note
    (tmp_path / "bad.jsonl").write_text('{"sentence": "a"}', encoding="utf-8")
    with pytest.raises(DataError, match="column 'text'"):
        criteria.create(f"neighbours:{tmp_path / 'bad.jsonl'}").pairs(elsewhere, [], 0)
    with pytest.raises(DataError, match="does not exist"):
        criteria.create(f"teacher:{tmp_path / 'none.txt'}").pairs(elsewhere, [], 0)


def test_the_teacher_takes_neighbours_from_texts_of_several_sentences() -> None:
    assert "halves" in criteria.create("teacher").pairs(topic_texts(120), [], 0).note
    assert "neighbours" in criteria.create("teacher").pairs(topic_texts(120, sentences=4), [], 0).note
