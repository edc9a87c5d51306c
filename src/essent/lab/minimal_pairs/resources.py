"""Resources of minimal pairs: WordNet, a masked language model, and a regression.

The masked language model predicts random words (Chiang et al. 2023, section 2.2.4) and scores synonyms and antonyms. A
logistic regression estimates the probability that one of these is good in context. Its coefficients are in
data/coefficients.json; `benchmarks/minimal_pairs.py` fits them to labelled pairs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias
from warnings import catch_warnings, simplefilter

import numpy as np
import torch

from essent._core.folders.contents import guarded, opening
from essent._core.hub import reach_model
from essent._core.lazy import optional_import
from essent.errors import DataError, ModelError
from essent.lab.minimal_pairs.parsing import DATA, read_table
from essent.tasks.base import unit_rows
from essent.tasks.geometry import average_cosine

# -- WordNet ----------------------------------------------------------------------------------------------------------

Lemma: TypeAlias = Any  # NLTK's; NLTK is an extra. One word in one sense
PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
MIN_USES = 3  # tagged uses of a frequent word


class WordNet:
    """Princeton's WordNet, on NLTK's search path, which includes the environment variable NLTK_DATA.

    Raises:
        DataError: WordNet is not found; the message names the command that downloads it.
        MissingDependencyError: NLTK is not installed.

    Example:
        >>> from essent import EssentError
        >>> from essent.lab.minimal_pairs import WordNet
        >>> try:
        ...     wordnet = WordNet()
        ... except EssentError as error:
        ...     print(str(error).split(": ")[-1])
        python -m nltk.downloader wordnet
    """

    def __init__(self) -> None:
        data = optional_import("nltk.data", "heros")
        try:
            self._reader, self._counts = _open_wordnet(data.find("corpora/wordnet/"))
        except (LookupError, OSError, ValueError) as error:
            reason = "" if isinstance(error, LookupError) else f" ({error})"
            raise DataError(
                f"NLTK finds no complete WordNet in {', '.join(data.path)}{reason}. "
                "Download it with: python -m nltk.downloader wordnet"
            ) from error
        self.senses = lru_cache(maxsize=100_000)(self._senses)
        self.relatives = lru_cache(maxsize=20_000)(self._relatives)

    def __contains__(self, word: object) -> bool:
        return any(self.senses(str(word), part) for part in PARTS)

    def _senses(self, word: str, part: str) -> list[tuple[int, Lemma]]:
        """Return the tagged count and the lemma of each sense of a word, the most frequent sense first."""
        lemmas = self._reader.lemmas(word.replace(" ", "_"), PARTS[part])
        lemma_by_key = {lemma.key(): lemma for lemma in lemmas}  # NLTK repeats a word that is also a form of another
        return [(self._counts.get(key, 0), lemma) for key, lemma in lemma_by_key.items()]

    def count(self, word: str, part: str) -> int:
        """Return how often a word was tagged as this part of speech."""
        return sum(count for count, _ in self.senses(word, part))

    def is_mostly(self, word: str, part: str) -> bool:
        """Whether a lemma was tagged often, and at least half of its uses are this part of speech."""
        uses = self.count(word, part)
        return uses >= MIN_USES and 2 * uses >= sum(self.count(word, name) for name in PARTS)

    def rank(self, sense: Lemma, part: str) -> int:
        """Return the rank of a sense among the senses of its word, from 1."""
        return [lemma.key() for _, lemma in self.senses(spelled(sense), part)].index(sense.key()) + 1

    def _relatives(self, word: str) -> frozenset[str]:
        """Return synonyms, antonyms, near synonyms and derivations of a word, in every sense and part of speech."""
        relatives = {word}
        for part in PARTS:
            for synset in (sense.synset() for _, sense in self.senses(word, part)):
                neighbours = synset.similar_tos() + (synset.hypernyms() if part == "verb" else [])
                for lemma in (lemma for neighbour in (synset, *neighbours) for lemma in neighbour.lemmas()):
                    opposites = [word for antonym in lemma.antonyms() for word in antonym.synset().lemmas()]
                    relatives.update(map(spelled, [lemma, *opposites]))
                for lemma in synset.lemmas():
                    relatives.update(map(spelled, lemma.derivationally_related_forms() + lemma.pertainyms()))
        return frozenset(relatives)


@cache  # NLTK never closes its files
def _open_wordnet(folder: Any) -> tuple[Any, dict[str, int]]:
    """Return NLTK's reader, and how often each sense was tagged."""
    with catch_warnings():
        simplefilter("ignore")  # NLTK warns that other languages are missing
        reader = optional_import("nltk.corpus", "heros").WordNetCorpusReader(folder, None)
    with reader.open("cntlist.rev") as lines:  # read once: NLTK searches the file for every sense
        return reader, {key: int(count) for key, _, count in map(str.split, lines)}


def spelled(lemma: Lemma) -> str:
    """Return the word of a lemma in lower case, with spaces."""
    return str(lemma.name().lower().replace("_", " "))


# -- the masked language model ----------------------------------------------------------------------------------------

FILLERS = 60
BATCH = 64  # sentences


class Query(NamedTuple):
    """A sentence, the character span of a word in it, and candidates that may replace the word."""

    sentence: str
    start: int
    end: int
    candidates: tuple[str, ...] = ()

    def with_word(self, word: str) -> str:
        """Return the sentence with another word in the span."""
        return self.sentence[: self.start] + word + self.sentence[self.end :]


class MaskedModel:
    """A masked language model of transformers with a fast tokenizer.

    Args:
        name: a hub name or a folder.
        device: by default the best one available.
        options: keyword arguments for transformers (revision, cache_dir …).

    Raises:
        ModelError: the model does not exist, or has no masked-LM head, no mask token or no fast tokenizer.

    Example:
        >>> from essent.lab.minimal_pairs import MaskedModel
        >>> model = MaskedModel("my-mlm")  # or "bert-large-uncased"
        >>> model.name
        'my-mlm'
    """

    def __init__(self, name: str, device: str | None = None, **options: Any) -> None:
        from sentence_transformers.util import get_device_name
        from transformers import AutoTokenizer

        from essent.model.mlm_head import MaskedLMHead, load_masked

        options = reach_model(name, options)
        with opening(name, options):
            self.tokenizer: Any = AutoTokenizer.from_pretrained(name, **guarded(options))
            if not self.tokenizer.is_fast or self.tokenizer.mask_token is None:
                raise ModelError(f"{name}: must be a masked language model with a fast tokenizer and a mask token.")
            model: Any = load_masked(name, dtype=torch.float32, **options)
        self.device = torch.device(device or get_device_name())
        self.model = model.to(self.device)
        self.head = MaskedLMHead(self.model)
        self.name = name

    @cached_property
    def _words_by_id(self) -> dict[int, str]:
        """Token ids mapped to their words, for tokens that are whole words of lower-case letters."""
        tokens = self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))
        marked = any(token and token[0] in "Ġ▁" for token in tokens)  # word starts are marked; otherwise subwords are
        word = re.compile(r"[Ġ▁]([a-z]{2,})" if marked else "([a-z]{2,})")
        matches = {index: word.fullmatch(token or "") for index, token in enumerate(tokens)}
        special = self.tokenizer.all_special_ids
        return {index: match[1] for index, match in matches.items() if match and index not in special}

    @cached_property
    def _ids_by_word(self) -> dict[str, int]:
        return {word: index for index, word in self._words_by_id.items()}

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Any]]:
        """Yield tokenized texts of similar length, which need little padding, with their indices."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        options = {"return_tensors": "pt", "padding": True, "truncation": True, "return_offsets_mapping": True}
        for start in range(0, len(order), BATCH):
            indices = order[start : start + BATCH]
            yield indices, self.tokenizer([texts[index] for index in indices], **options).to(self.device)

    @torch.inference_mode()
    def mask_scores(self, queries: Sequence[Query]) -> list[tuple[dict[str, float], dict[str, float]]]:
        """Return the log-probabilities at each masked word: of the candidates, and of the most probable words.

        A candidate that is not a single token of the model has -inf. The most probable words are best first; there are
        none if the text is truncated before the masked word.
        """
        scores: dict[int, tuple[dict[str, float], dict[str, float]]] = {}
        for indices, batch in self._batches([query.with_word(self.tokenizer.mask_token) for query in queries]):
            del batch["offset_mapping"]
            is_mask = batch["input_ids"] == self.tokenizer.mask_token_id  # (B,T)
            states = self.model.base_model(**batch).last_hidden_state  # (B,T,D)
            mask_states = states[torch.arange(len(indices), device=self.device), is_mask.int().argmax(dim=1)]  # (B,D)
            logs = self.head(mask_states).float().log_softmax(-1)  # (B,V)
            logs = logs.masked_fill(~is_mask.any(dim=1, keepdim=True), -torch.inf).cpu().numpy()
            for index, row in zip(indices, logs, strict=True):
                ids, words = self._ids_by_word, queries[index].candidates
                best = np.argsort(-row, kind="stable")[: 4 * FILLERS].tolist()
                best = [token for token in best if token in self._words_by_id][:FILLERS]
                candidates = {word: float(row[ids[word]]) if word in ids else -np.inf for word in words}
                fillers = {self._words_by_id[token]: float(row[token]) for token in best if np.isfinite(row[token])}
                scores[index] = candidates, fillers
        return [scores[index] for index in range(len(queries))]

    def similarities(self, queries: Sequence[Query]) -> list[dict[str, float]]:
        """Return the similarity in context of each candidate and the word that it replaces: normalized cosines.

        The states (mean over a word's tokens) are those after two thirds of the layers: lower layers depend less on
        the context, higher ones approach the model's prediction. A cosine c becomes (c - b) / (1 - b), where b is the
        mean cosine of unrelated words, as in HEROS, Appendix D: models differ in how similar all their states are.
        """
        texts = [
            (query.with_word(word), query.start, query.start + len(word))
            for query in queries
            for word in (query.sentence[query.start : query.end], *query.candidates)
        ]
        vectors, cosines, base = iter(self._states(texts)), [], self.baseline
        for query in queries:
            original = next(vectors)
            cosines.append({word: (float(next(vectors) @ original) - base) / (1.0 - base) for word in query.candidates})
        return cosines

    @cached_property
    def baseline(self) -> float:
        """Mean cosine of the states of different words in different sentences."""
        rows = [(row["sentence"], row["sentence"].index(row["word"]), row["word"]) for row in read_table("probes.tsv")]
        vectors = self._states([(text, start, start + len(word)) for text, start, word in rows])
        return min(average_cosine(vectors), 0.999)  # avoids a division by zero

    @torch.inference_mode()
    def _states(self, spans: Sequence[tuple[str, int, int]]) -> np.ndarray:
        """Return unit vectors (N,D) of the words between two characters of each text; zero for truncated words."""
        distinct = list(dict.fromkeys(spans))
        layer = round(2 / 3 * self.model.config.num_hidden_layers)
        states_by_span: dict[tuple[str, int, int], np.ndarray] = {}
        for indices, batch in self._batches([text for text, _, _ in distinct]):
            offsets = batch.pop("offset_mapping").cpu().numpy()  # (B,T,2)
            states = self.model.base_model(**batch, output_hidden_states=True).hidden_states[layer]  # (B,T,D)
            batch_spans = [distinct[index] for index in indices]
            begin, end = (np.array([span[side] for span in batch_spans])[:, None] for side in (1, 2))
            inside = (offsets[..., 0] < end) & (offsets[..., 1] > begin)  # (B,T)
            sums = np.einsum("bt,btd->bd", inside.astype(np.float32), states.float().cpu().numpy())
            states_by_span.update(zip(batch_spans, unit_rows(sums), strict=True))
        return np.stack([states_by_span[span] for span in spans]) if spans else np.zeros((0, 1))


# -- the quality of a replacement --------------------------------------------------------------------------------------

UNSEEN, MIN_LOG = -12.0, -14.0  # log-probability of a word without a token, and the lower limit
RELATIONS = ("synonym", "antonym")


class Evidence(NamedTuple):
    """The features of a replacement in context.

    Attributes:
        similarity: similarity of its state to the replaced word's, minus the similarity of unrelated words.
        prior: log share of the sense, minus the penalties of WordNet's relation to it.
        probability: log-probability of the replacement in context; -inf if it is not a single token.
        prefix: whether it differs from the word by a prefix only: unhappy.
    """

    similarity: float
    prior: float
    probability: float
    prefix: bool = False

    def terms(self) -> dict[str, float]:
        """Return the terms of the regression by name."""
        likely = max(self.probability, MIN_LOG) if math.isfinite(self.probability) else UNSEEN
        return {**self._asdict(), "probability": likely, "prefix": float(self.prefix)}


@cache
def coefficients() -> dict[str, dict[str, float]]:
    """Return the coefficients of the regression for synonyms and antonyms, by term."""
    fitted: dict[str, dict[str, float]] = json.loads((DATA / "coefficients.json").read_text("utf-8"))
    return {relation: fitted[relation] for relation in RELATIONS}


def probability(relation: str, evidence: Evidence) -> float:
    """Return the probability that the replacement is a good synonym or antonym."""
    weights, terms = coefficients()[relation], {"constant": 1.0, **evidence.terms()}
    return 1 / (1 + math.exp(-sum(weight * terms[name] for name, weight in weights.items())))
