"""Score the templates of a grammar (PromptBERT 4.2, Table 4), or those that a T5 has generated.

A T5 writes the words between a definition and its term (PromptBERT 4.2; Gao et al. 2021, 5.2):

    input       A sour fruit.<extra_id_0> lemon<extra_id_1>
    output      <extra_id_0> is called a<extra_id_1>.<extra_id_2>
    template    {text} is called a [MASK].

Each filling is shared by all pairs: it is found by a beam search over Σ log p(filling | pair), in two forms, with the
definition first or the word first. All candidates are then scored on the data, one pass per candidate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from tqdm.auto import tqdm

from essent._core.arguments import ModelLike
from essent._core.folders.contents import guarded, opening, weight_shapes
from essent._core.hub import file_options, reach_model
from essent._core.registry import did_you_mean
from essent.errors import DataError, InputError, ModelError, UnknownNameError
from essent.model.weights import require_weights
from essent.recipe.named import MASK, SLOT
from essent.selection.leaderboard import Leaderboard
from essent.selection.run import search
from essent.selection.space import Grammar as Grammar  # a public name of this package
from essent.selection.space import Grid, Space, read_yaml
from essent.tasks.data import located_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROMPT_BERT = Grammar(  # the candidates in PromptBERT's Table 4
    "{wrapping} {relation} [MASK] .",
    {
        "relation": ("", "is", "mean", "means"),
        "wrapping": (
            "{text}",
            "This {text}",
            "This sentence of {text}",
            'This sentence of "{text}"',
            'This sentence : "{text}"',
        ),
    },
)


def find_grammar(name: str | Path) -> Grammar:
    """Return the grammar "promptbert", or read one from a YAML file with `template` and a list of choices per slot.

    Raises:
        UnknownNameError: neither a named grammar nor a file.
        DataError: the file cannot be read.
        RecipeError: see `Grammar`.
    """
    if str(name) == "promptbert":
        return PROMPT_BERT
    path = Path(name)
    if path.suffix.lower() not in (".yaml", ".yml", ".json") and not path.is_file():
        hint = did_you_mean(str(name), ["promptbert"])
        raise UnknownNameError(f"Unknown template grammar {str(name)!r}. {hint} A .yaml file is also possible.")
    slots = read_yaml(path)
    template = slots.pop("template", None) if isinstance(slots, dict) else None
    if template is None or not all(isinstance(choices, list) for choices in slots.values()):
        raise DataError(f"{path}: expected `template` and a list of choices for each of its slots, got {slots!r}.")
    texts = {slot: tuple("" if choice is None else str(choice) for choice in slots[slot]) for slot in slots}
    return Grammar(str(template), texts)


def search_templates(
    model: ModelLike,
    data: Any,
    templates: Sequence[str] = tuple(PROMPT_BERT.templates()),
    *,
    weights: str = "mask",
    layers: str = "L",
    shaping: str = "",
    **arguments: Any,
) -> Leaderboard:
    """Score every template and compare the best recipe with the baselines, with one forward pass per template.

    Args:
        model, data: as in `essent.search`.
        templates: those of a grammar (`Grammar.templates`), or generated ones (`generate_templates`); by default the
            20 of PromptBERT's Table 4. Templates that do not fit the model are excluded: its tokenizer joins them with
            the text, or they leave no room for it.
        weights, layers, shaping: how the template's tokens become a vector: by default its [MASK] in the last layer.
        arguments: further arguments of `essent.search` (test, criterion, baselines, work, device …).

    Raises:
        UnsupportedRecipeError: no template fits the model, or [MASK] is needed and the model has no mask token.
        InputError: no templates.
        RecipeError: no template fits `weights`.

    Example:
        >>> from essent.lab.templates import Grammar, search_templates
        >>> grammar = Grammar("{text} {relation} [MASK] .", {"relation": ("is", "means")})
        >>> board = search_templates("my-mlm", "pairs.jsonl", grammar.templates(), baselines=["mean"])
        >>> len(board.trials)  # 2 templates, 1 baseline
        3
    """
    if isinstance(templates, (str, Grammar)) or not templates:
        raise InputError(f"templates={templates!r}: must be a list of templates, such as `grammar.templates()`.")
    grid = Grid(templates=tuple(templates), layers=(layers,), weights=(weights,), shaping=(shaping,))
    return search(model, data, Space((grid,), name="templates"), **arguments)


# -- templates from a T5 ----------------------------------------------------------------------------------------------

FIRST, SECOND, END = "<extra_id_0>", "<extra_id_1>", "<extra_id_2>"
FORMS = (  # the input of the T5, and the template that its two fillings make; the definition or the word comes first
    ("{definition}" + FIRST + " {word}" + SECOND, "{text}{first} [MASK]{second}"),
    ("." + FIRST + " {word}" + SECOND + " {definition}", "{first} [MASK]{second} {text}"),
)
SCORES = 2**25  # logits in memory at a time, 128 MiB
CANDIDATES = 500  # templates to generate
LONGEST = 20  # tokens per filling, including sentinels


class Definition(NamedTuple):
    """A word and its definition, which does not contain the word.

    Example:
        >>> from essent.lab.templates import Definition
        >>> pair = Definition("lemon", "A sour fruit.")
        >>> pair.word
        'lemon'
    """

    word: str
    definition: str


DEFINITIONS = tuple(  # written for essent
    Definition(row.values["word"], row.values["definition"])
    for row in located_rows(Path(__file__).parent / "definitions.tsv")
)


class Candidate(NamedTuple):
    """A generated template and the log-likelihood of its filling, the mean over all pairs (natural logarithm).

    Example:
        >>> from essent.lab.templates import Candidate
        >>> candidate = Candidate("{text} is called a [MASK].", -10.4)
        >>> candidate.template
        '{text} is called a [MASK].'
    """

    template: str
    log_likelihood: float


class Filling(NamedTuple):
    """The tokens that a T5 generates for its two sentinels."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    log_likelihood: float


class Generator:
    """A T5 with sentinels, which fills the gaps between definitions and words.

    Args:
        name: a hub name or folder.
        device: "cpu", "cuda" …; by default the GPU if there is one.
        options: keyword arguments for transformers' from_pretrained (revision, token …).

    Raises:
        ModelError: no such model, not a sequence-to-sequence model, or a tokenizer without sentinels.

    Example:
        >>> from essent.lab.templates import Generator
        >>> generator = Generator("my-t5")  # "t5-large"
        >>> fillings = generator.fillings(["A sour fruit.<extra_id_0> lemon<extra_id_1>"], beams=2, longest=6)
        >>> len(fillings) <= 2
        True
    """

    def __init__(self, name: str, device: str | None = None, **options: Any) -> None:
        from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

        options = reach_model(name, options)
        with opening(name, options):
            self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(name, **guarded(options))
            if not AutoConfig.from_pretrained(name, **guarded(options)).is_encoder_decoder:
                raise ModelError(f"{name} is not a sequence-to-sequence model. Use a T5 such as t5-large.")
            settings = {"dtype": torch.float32, "output_loading_info": True, **guarded(options, weights=True)}
            model, report = AutoModelForSeq2SeqLM.from_pretrained(name, **settings)
            if report["missing_keys"]:
                shapes = weight_shapes(name, file_options(options))
                require_weights(name, model, lambda: shapes, report["missing_keys"])
        self.name = name
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.model: Any = model.eval().to(self.device)
        vocabulary = self.tokenizer.get_vocab()
        if missing := [sentinel for sentinel in (FIRST, SECOND, END) if sentinel not in vocabulary]:
            raise ModelError(f"{name}: the tokenizer has no sentinel {missing[0]}. Use a T5 such as t5-large.")
        self.sentinels = [vocabulary[sentinel] for sentinel in (FIRST, SECOND, END)]
        # excluded from fillings: special tokens except the next sentinels, and rows without a token
        allowed = set(vocabulary.values()) - set(self.tokenizer.all_special_ids) | set(self.sentinels[1:])
        self.excluded = [token for token in range(int(model.config.vocab_size)) if token not in allowed]

    @torch.inference_mode()
    def fillings(
        self, inputs: Sequence[str], beams: int, longest: int = LONGEST, progress: bool = False
    ) -> list[Filling]:
        """Find the most probable fillings shared by all inputs, best first.

        Args:
            inputs: texts with the first two sentinels.
            beams: number of beams, and maximum number of fillings.
            longest: maximum number of tokens after the first sentinel, including the other sentinels.
            progress: show a progress bar.
        """
        batch = self.tokenizer(list(inputs), return_tensors="pt", padding=True).to(self.device)
        encoded = self.model.get_encoder()(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
        first, second, end = self.sentinels
        start = [int(self.model.config.decoder_start_token_id), first]
        prefixes, scores = torch.tensor([start], device=self.device), torch.zeros(1, device=self.device)  # (b,i), (b,)
        finished: list[Filling] = []
        for _ in tqdm(range(longest), desc="Filling", unit="token", disable=not progress):
            next_scores = self._next_scores(prefixes, encoded.last_hidden_state, batch.attention_mask)  # (b,V)
            in_second = (prefixes == second).any(dim=1)  # (b,) whether the first gap is filled
            next_scores[~in_second, end] = -torch.inf
            next_scores[in_second, second] = -torch.inf
            next_scores += scores[:, None]
            complete = zip(prefixes[in_second, 2:].tolist(), next_scores[in_second, end].tolist(), strict=True)
            for ids, score in complete:
                middle = ids.index(second)
                finished.append(Filling(tuple(ids[:middle]), tuple(ids[middle + 1 :]), score))
            finished = sorted(finished, key=lambda filling: -filling.log_likelihood)[:beams]
            next_scores[:, end] = -torch.inf
            best = next_scores.flatten().topk(min(beams, next_scores.numel()))
            promising = best.values > (finished[-1].log_likelihood if len(finished) == beams else -torch.inf)
            if not bool(promising.any()):  # a longer filling is never more probable
                break
            rows = best.indices[promising] // next_scores.shape[1]
            tokens = best.indices[promising] % next_scores.shape[1]
            prefixes, scores = torch.cat([prefixes[rows], tokens[:, None]], dim=1), best.values[promising]
        return finished

    def _next_scores(self, prefixes: torch.Tensor, memory: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return log p of every next token, the mean over the pairs: (b,V), −∞ for excluded tokens."""
        from transformers.modeling_outputs import BaseModelOutput

        pairs, vocabulary = memory.shape[0], int(self.model.config.vocab_size)
        scores = []
        for portion in prefixes.split(max(SCORES // (pairs * prefixes.shape[1] * vocabulary), 1)):
            logits = self.model(
                encoder_outputs=BaseModelOutput(last_hidden_state=memory.repeat(len(portion), 1, 1)),
                attention_mask=attention_mask.repeat(len(portion), 1),
                decoder_input_ids=portion.repeat_interleave(pairs, dim=0),
                use_cache=False,
            ).logits[:, -1]  # (c·E,V)
            scores.append(logits.log_softmax(dim=-1).view(len(portion), pairs, -1).mean(dim=1))
        next_scores = torch.cat(scores)
        next_scores[:, self.excluded] = -torch.inf
        return next_scores

    def text(self, ids: Sequence[int]) -> str:
        """Convert tokens to text, with a leading space if the first token has one."""
        tokens = self.tokenizer.convert_ids_to_tokens(list(ids))
        return "".join(tokens).replace("▁", " ")


def generate_templates(
    generator: Generator | str,
    pairs: Sequence[Definition] = DEFINITIONS,
    *,
    candidates: int = CANDIDATES,
    longest: int = LONGEST,
    progress: bool = False,
    device: str | None = None,
) -> list[Candidate]:
    """Generate distinct valid templates, most probable first.

    Args:
        generator: a T5, or its hub name or folder.
        pairs: words with their definitions; by default 50 pairs written for essent.
        candidates: maximum number of templates; the beam search of each of the two forms has half as many beams.
        longest: maximum number of tokens per filling.
        progress: show a progress bar.
        device: device of a T5 given by name.

    Raises:
        InputError: no pairs, or fewer than two candidates.
        ModelError: see `Generator`.

    Example:
        >>> from essent.lab.templates import Definition, generate_templates
        >>> pairs = [Definition("lemon", "A sour fruit."), Definition("anchor", "A heavy hook that holds a ship.")]
        >>> candidates = generate_templates("my-t5", pairs, candidates=4, longest=6)  # "t5-large"
        >>> len(candidates) <= 4
        True
    """
    if not pairs:
        raise InputError("pairs is empty: templates are generated from at least one word–definition pair.")
    if candidates < 2:
        raise InputError(f"candidates={candidates!r}: must be at least 2, one per form.")
    if isinstance(generator, str):
        generator = Generator(generator, device)
    likelihoods: dict[str, float] = {}
    for source, form in FORMS:
        inputs = [source.format(word=pair.word, definition=sentence(pair.definition)) for pair in pairs]
        for filling in generator.fillings(inputs, candidates // 2, longest, progress):
            first, second = generator.text(filling.first), generator.text(filling.second)
            if (template := template_of(form, first, second)) is not None:
                likelihoods[template] = max(likelihoods.get(template, -math.inf), filling.log_likelihood)
    return [Candidate(*entry) for entry in sorted(likelihoods.items(), key=lambda entry: -entry[1])]


def sentence(definition: str) -> str:
    """Convert a definition to a sentence, with a capital and a full stop."""
    text = definition.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def template_of(form: str, first: str, second: str) -> str | None:
    """Put two fillings into a form; return the template, or None if it is not valid.

    Fillings with braces, masks, sentinels or several dots are not valid.
    """
    if any(re.search(r"[{}<>\[\]\ufffd]|\.\s*\.|…", part) for part in (first, second)):
        return None
    text = re.sub(r"\s+", " ", form.replace("{first}", first).replace("{second}", second)).strip()
    return text if text.count(SLOT) == 1 and text.count(MASK) == 1 else None
