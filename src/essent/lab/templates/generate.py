"""Templates written by T5: what stands between a definition and its word (PromptBERT 4.2; Gao et al. 2021, 5.2).

    T5 reads    A sour fruit.<extra_id_0> lemon<extra_id_1>
    it writes   <extra_id_0> is called a<extra_id_1>.<extra_id_2>
    template    {text} is called a [MASK].

One filling serves all pairs: a beam search over Σ log p(filling | pair), in two forms, the definition first or the word
first. All candidates are then scored on the data, one pass each.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from tqdm.auto import tqdm

from essent._core.atomic import write_json
from essent._core.folders.opening import guarded, opening
from essent._core.folders.weights import weight_shapes
from essent._core.hub import file_options, reach_model
from essent._core.registry import did_you_mean
from essent.errors import DataError, InputError, ModelError
from essent.model.weights import require_weights
from essent.recipe.recipe import MASK, SLOT
from essent.tasks.data import located_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FIRST, SECOND, END = "<extra_id_0>", "<extra_id_1>", "<extra_id_2>"
FORMS = {  # what T5 reads, and how its two fillings make a template
    "definition first": ("{definition}" + FIRST + " {word}" + SECOND, "{text}{first} [MASK]{second}"),
    "word first": ("." + FIRST + " {word}" + SECOND + " {definition}", "{first} [MASK]{second} {text}"),
}
SCORES = 2**25  # logits held at a time, 128 MiB
CANDIDATES = 500  # templates that are written
LONGEST = 20  # tokens of a filling, sentinels included


class Definition(NamedTuple):
    """A word and what it means, the definition without its word."""

    word: str
    definition: str


def read_definitions(path: str | Path) -> tuple[Definition, ...]:
    """Read a .jsonl, .json, .csv, .tsv or .parquet file with the columns `word` and `definition`.

    Raises:
        DataError: no such file, no rows, a missing column, or an empty or other value; names file and line.
    """
    definitions = []
    for row in located_rows(Path(path)):
        for name in Definition._fields:
            if name not in row.values:
                raise DataError(f"{row.where}: no column {name!r}. {did_you_mean(name, list(row.values))}")
            text = row.values[name]
            if not isinstance(text, str) or not text.strip():
                raise DataError(f"{row.where}: {name!r} must be a text that is not empty, not {text!r}.")
        definitions.append(Definition(row.values["word"].strip(), row.values["definition"].strip()))
    if not definitions:
        raise DataError(f"{path} has no definitions.")
    return tuple(definitions)


DEFINITIONS = read_definitions(Path(__file__).parent / "definitions.tsv")  # written for essent


class Candidate(NamedTuple):
    """A template with the mean over all pairs of the log likelihood of its filling, natural logarithm."""

    template: str
    log_likelihood: float


class Filling(NamedTuple):
    """The tokens that T5 puts at its two sentinels."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    log_likelihood: float


class Generator:
    """A T5 with sentinels, by hub name or folder.

    Raises:
        ModelError: no such model, no sequence-to-sequence model, or a tokenizer without sentinels.
    """

    def __init__(self, name: str, device: str | None = None, **options: Any) -> None:
        from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

        options = reach_model(name, options)
        with opening(name, options):
            self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(name, **guarded(options))
            if not AutoConfig.from_pretrained(name, **guarded(options)).is_encoder_decoder:
                raise ModelError(f"{name} is not a sequence-to-sequence model; give a T5, for example t5-large.")
            weights = guarded(options, weights=True)
            model, report = AutoModelForSeq2SeqLM.from_pretrained(
                name, dtype=torch.float32, output_loading_info=True, **weights
            )
            if report["missing_keys"]:
                require_weights(name, model, weight_shapes(name, file_options(options)), report["missing_keys"])
        self.name = name
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.model: Any = model.eval().to(self.device)
        known = self.tokenizer.get_vocab()
        for sentinel in (FIRST, SECOND, END):
            if sentinel not in known:
                raise ModelError(f"{name}: the tokenizer has no sentinel {sentinel}, as a T5 that fills spans has.")
        self.sentinels = [known[sentinel] for sentinel in (FIRST, SECOND, END)]
        # what no filling has: special tokens but the next sentinels, and rows without a token
        allowed = set(known.values()) - set(self.tokenizer.all_special_ids) | set(self.sentinels[1:])
        never = [token for token in range(int(model.config.vocab_size)) if token not in allowed]
        self.never = torch.tensor(never, dtype=torch.long, device=self.device)

    @torch.inference_mode()
    def fillings(
        self, inputs: Sequence[str], beams: int, longest: int = LONGEST, progress: bool = False
    ) -> list[Filling]:
        """The most probable fillings that are common to all inputs, best first; at most `beams`.

        Args:
            inputs: texts with the first two sentinels.
            longest: tokens of a filling after its first sentinel, the other sentinels included.
        """
        read = self.tokenizer(list(inputs), return_tensors="pt", padding=True).to(self.device)
        encoded = self.model.get_encoder()(input_ids=read.input_ids, attention_mask=read.attention_mask)
        memory = encoded.last_hidden_state  # (E,S,D)
        start = [int(self.model.config.decoder_start_token_id), self.sentinels[0]]
        prefixes, scores = torch.tensor([start], device=self.device), torch.zeros(1, device=self.device)  # (b,i), (b,)
        done: list[Filling] = []
        for _ in tqdm(range(longest), desc="Filling", unit="token", disable=not progress):
            parts = (prefixes == self.sentinels[1]).sum(dim=1)  # (b,) 0: at the first sentinel, 1: at the second
            ahead = scores[:, None] + self._next(prefixes, parts, memory, read.attention_mask)  # (b,V)
            done += self._closed(prefixes, parts, ahead)
            done = sorted(done, key=lambda filling: -filling.log_likelihood)[:beams]
            ahead[:, self.sentinels[2]] = -torch.inf
            best = ahead.flatten().topk(min(beams, ahead.numel()))
            alive = best.values > (done[-1].log_likelihood if len(done) == beams else -torch.inf)
            if not bool(alive.any()):  # a longer filling is never more probable
                break
            rows, tokens = best.indices[alive] // ahead.shape[1], best.indices[alive] % ahead.shape[1]
            prefixes, scores = torch.cat([prefixes[rows], tokens[:, None]], dim=1), best.values[alive]
        return done

    def _next(
        self, prefixes: torch.Tensor, parts: torch.Tensor, memory: torch.Tensor, attention_mask: torch.Tensor
    ) -> torch.Tensor:
        """Mean over the pairs of log p of every next token: (b,V), −∞ for tokens that may not stand there."""
        from transformers.modeling_outputs import BaseModelOutput

        pairs, vocabulary = memory.shape[0], int(self.model.config.vocab_size)
        at_once = max(SCORES // (pairs * prefixes.shape[1] * vocabulary), 1)
        log_probabilities = []
        for portion in prefixes.split(at_once):
            count = len(portion)
            logits = self.model(
                encoder_outputs=BaseModelOutput(last_hidden_state=memory.repeat(count, 1, 1)),
                attention_mask=attention_mask.repeat(count, 1),
                decoder_input_ids=portion.repeat_interleave(pairs, dim=0),
                use_cache=False,
            ).logits[:, -1]  # (c·E,V)
            log_probabilities.append(logits.log_softmax(dim=-1).view(count, pairs, -1).mean(dim=1))
        scores = torch.cat(log_probabilities)
        scores[:, self.never] = -torch.inf
        scores[parts == 0, self.sentinels[2]] = -torch.inf
        scores[parts == 1, self.sentinels[1]] = -torch.inf
        return scores

    def _closed(self, prefixes: torch.Tensor, parts: torch.Tensor, ahead: torch.Tensor) -> list[Filling]:
        """Fillings that end here: those at their second sentinel, with the third after them."""
        closed = zip(prefixes[parts == 1, 2:].tolist(), ahead[parts == 1, self.sentinels[2]].tolist(), strict=True)
        cut = [(ids, ids.index(self.sentinels[1]), score) for ids, score in closed]
        return [Filling(tuple(ids[:middle]), tuple(ids[middle + 1 :]), score) for ids, middle, score in cut]

    def text(self, ids: Sequence[int]) -> str:
        """Tokens as a text, a space in front where the first of them has one."""
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
    keep: str | Path | None = None,
) -> list[Candidate]:
    """Distinct valid templates, most probable first: half of the beams go to each form.

    Args:
        generator: a T5, or its hub name or folder.
        pairs: words with their definitions.
        candidates: at most so many; each form is searched with half as many beams.
        device: of a T5 that is loaded here.
        keep: a file that keeps the templates; where it is there already, they are read from it.

    Raises:
        InputError: no pairs, or fewer than two candidates.
        ModelError: see `Generator`.
        DataError: the file holds templates by another T5, or from other pairs.
    """
    if not pairs:
        raise InputError("Templates are generated from word–definition pairs, got none.")
    if candidates < 2:
        raise InputError(f"candidates={candidates!r} must be at least 2: one for each form.")
    t5 = generator if isinstance(generator, str) else generator.name
    metadata = {"t5": t5, "pairs": [list(pair) for pair in pairs], "candidates": candidates, "longest": longest}
    if keep is not None and Path(keep).is_file():
        cached = json.loads(Path(keep).read_text("utf-8"))
        if {key: cached.get(key) for key in metadata} != metadata:
            raise DataError(f"{keep} holds templates by another T5 or from other pairs; give another place (--work).")
        return [Candidate(*fields) for fields in cached["templates"]]
    t5_generator = Generator(generator, device) if isinstance(generator, str) else generator
    likelihoods: dict[str, float] = {}
    for source, target in FORMS.values():
        inputs = [source.format(word=pair.word, definition=sentence(pair.definition)) for pair in pairs]
        for filling in t5_generator.fillings(inputs, candidates // 2, longest, progress):
            first, second = t5_generator.text(filling.first), t5_generator.text(filling.second)
            if (template := template_of(target, first, second)) is not None:
                likelihoods[template] = max(likelihoods.get(template, -math.inf), filling.log_likelihood)
    templates = [Candidate(*entry) for entry in sorted(likelihoods.items(), key=lambda entry: -entry[1])]
    if keep is not None:
        write_json(keep, {**metadata, "templates": templates}, indent=None)
    return templates


def sentence(definition: str) -> str:
    """A definition as a sentence: a capital first, a full stop last."""
    text = definition.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def template_of(form: str, first: str, second: str) -> str | None:
    """A form with its two fillings as a template; None when that is no valid one.

    Left out: what has braces, a mask or a sentinel of its own, and rows of dots.
    """
    if any(re.search(r"[{}<>\[\]\ufffd]|\.\s*\.|…", part) for part in (first, second)):
        return None
    text = re.sub(r"\s+", " ", form.replace("{first}", first).replace("{second}", second)).strip()
    return text if text.count(SLOT) == 1 and text.count(MASK) == 1 else None
