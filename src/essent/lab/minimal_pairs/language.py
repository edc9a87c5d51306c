"""What one language needs for minimal pairs; all else works on dependency trees of any language.

A language is a subclass of `Language`: how a verb or adjective is negated, which words may be replaced, how they are
inflected. `English` is complete; the tests hold a small Esperanto to the same contract.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from essent._core.lazy import optional_import
from essent._core.types import TextsLike
from essent.errors import InputError, ModelError
from essent.lab.minimal_pairs.edits import Edit, apply_edits, like_case

Doc: TypeAlias = Any  # spaCy's, which is an extra
Token: TypeAlias = Any
Result = TypeVar("Result")


class UnsuitableError(InputError):
    """Why a sentence or word is left out: the filter and the reason, the same words for all of a kind."""

    def __init__(self, filter: str, reason: str) -> None:
        super().__init__(reason)
        self.filter, self.reason = filter, reason


@dataclass(frozen=True)
class Negation:
    """A negated sentence: the text, what was changed in places of the original, and the rule, e.g. "do-support"."""

    text: str
    edits: tuple[Edit, ...]
    rule: str

    @classmethod
    def of(cls, doc: Doc, edits: Sequence[Edit], rule: str) -> Negation:
        """The sentence of a parse with edits made."""
        return cls(apply_edits(str(doc.user_data.get("text", doc.text)), edits), tuple(edits), rule)


def attempt(function: Callable[..., Result], *arguments: object) -> Result | UnsuitableError:
    """What a function returns, or why it refuses."""
    try:
        return function(*arguments)
    except UnsuitableError as error:
        return error


class Language(ABC):
    """One language.

    Attributes:
        name: as a reader says it.
        pipelines: packages of spaCy that parse it; the first that is installed is taken.
        negators: lower-case words that negate a verb.
    """

    name: str
    pipelines: tuple[str, ...]
    negators: tuple[str, ...]

    @abstractmethod
    def statement(self, doc: Doc) -> Token:
        """The main verb of a declarative sentence.

        Raises:
            UnsuitableError: a question, a title, a fragment; the reason.
        """

    @abstractmethod
    def negate(self, token: Token) -> Negation:
        """The sentence with a verb or adjective negated, or with its negation taken.

        Raises:
            UnsuitableError: the rules leave it alone; the reason.
        """

    @abstractmethod
    def replaceable(self, doc: Doc) -> list[Token]:
        """Verbs and adjectives with a meaning of their own in the sentence."""

    @abstractmethod
    def part(self, token: Token) -> str:
        """A part of speech of WordNet: "verb", "adj", "noun" or "adv"; "" for another."""

    @abstractmethod
    def lemmas(self, word: str, like: Token) -> tuple[str, ...]:
        """The lemmas that a lower-case word can have in the form of a token."""

    def base(self, token: Token) -> str:
        """The lemma of a parsed token; the parser's own by default."""
        return str(token.lemma_)

    @abstractmethod
    def inflect(self, lemma: str, like: Token) -> str | None:
        """A lemma in the form of a token; None when it has none of one word."""

    @abstractmethod
    def forms(self, lemma: str) -> set[str]:
        """Every spelling of a lemma."""

    @abstractmethod
    def is_word(self, word: str) -> bool:
        """Whether a lower-case word is in the lexicon."""

    def fits(self, token: Token, frames: set[int]) -> bool:
        """Whether a word that stands in these sentence frames of WordNet takes what stands beside the token."""
        return True

    def mend(self, token: Token, new: str) -> list[Edit]:
        """Edits of what agrees with a token when another word comes to stand there."""
        return []

    def ungrammatical(self, doc: Doc) -> str | None:
        """A sign of bad grammar, or None."""
        return None

    def replace(self, token: Token, new: str) -> str:
        """The sentence with another word in the place of one, in its capitals."""
        edit = Edit(token.idx, token.idx + len(token), like_case(new, token.text))
        return apply_edits(str(token.doc.user_data["text"]), [edit, *self.mend(token, new)])


class Parser:
    """A pipeline of spaCy that tags and parses sentences.

    Args:
        language: whose pipelines are tried.
        pipeline: another installed one, a folder, or a loaded one: "en_core_web_trf".

    Raises:
        ModelError: no such pipeline, or one without a tagger or parser.
        MissingDependencyError: spaCy is not installed.
    """

    def __init__(self, language: Language, pipeline: Any = None) -> None:
        spacy = optional_import("spacy", "heros")
        names = language.pipelines if pipeline is None else (pipeline,)
        if all(isinstance(name, str) for name in names):
            found = next((name for name in names if spacy.util.is_package(name)), names[0])
            try:
                pipeline = spacy.load(found, exclude=["ner"])
            except (OSError, ValueError) as error:
                raise ModelError(
                    f"The parser {found!r} is not installed. Install it with: python -m spacy download {found}"
                ) from error
        self.language, self.pipeline = language, pipeline
        missing = [part for part in ("tagger", "parser") if part not in pipeline.pipe_names]
        if missing and not pipeline.meta.get("parses"):  # said by a component of one's own that does both
            raise ModelError(
                f"The parser {pipeline.meta.get('name', '')!r} has no {missing[0]}: {language.name} needs one such as "
                f"{language.pipelines[0]}."
            )
        self.name = f"{pipeline.meta['lang']}_{pipeline.meta['name']} {pipeline.meta['version']}"
        self.splitter: Any = spacy.blank(pipeline.lang)  # "Mr." is a token of its own, so no sentence ends there
        self.splitter.max_length = sys.maxsize  # spaCy's limit is there for parsers, which need memory for each word
        self.splitter.add_pipe("sentencizer", config={"punct_chars": [*".!?…", "..", "..."]})

    def split(self, texts: TextsLike) -> Iterator[str]:
        """Sentences of texts, by their marks and lines, without stars for emphasis and the quotes of a CSV field."""
        lines = [line for text in texts for line in text.replace('""', '"').replace("*", "").splitlines()]
        for doc in self.splitter.pipe(lines):
            yield from filter(None, (sentence.text.strip() for sentence in doc.sents))

    def __call__(self, sentences: Sequence[str]) -> list[Doc]:
        """The parses, with the sentences in `user_data["text"]`; typographic apostrophes are read as straight ones."""
        found = list(self.pipeline.pipe([sentence.replace("’", "'") for sentence in sentences], batch_size=128))
        for doc, sentence in zip(found, sentences, strict=True):
            doc.user_data["text"] = sentence
            for token in doc:
                token.lemma_ = self.language.base(token)
        return found
