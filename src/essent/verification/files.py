"""What a folder says: its prompts, its pooling and its card, and whether it is what was saved."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from essent.encoder.encoder import Encoder
from essent.errors import VerificationError
from essent.recipe.recipe import Recipe
from essent.verification.finding import Finding
from essent.verification.golden import verify
from essent.verification.patient import Patient

# Families that were trained with words before every text, by a part of their names (their model cards say so).
TRAINED_WITH = {
    r"\be5\b": {"query": "query: ", "passage": "passage: "},
    r"\bnomic-embed": {"query": "search_query: ", "document": "search_document: "},
}
# In a card: "query: how much protein should a female eat"
IN_CARD = re.compile(r"""["'`](query: |passage: |search_query: |search_document: )""")
NEGATIVE = ("document", "passage", "corpus")
MODES = {
    "cls_token": "cls",
    "mean_tokens": "mean",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}
RECIPES = {
    "mean": "mean",
    "cls": "cls",
    "lasttoken": "last-token",
    "max": "reduce=max",
    "weightedmean": "weights=position",
}
FLAG = re.compile(r"'?pooling_mode_(\w+)'?: True")
MODE = re.compile(r"'pooling_mode': '(\w+)'")
PHRASE = re.compile(r"\b(mean|cls|max|last[- ]?token)[- ]pool", re.IGNORECASE)


def prompts(patient: Patient) -> Iterator[Finding]:
    """Prompts that the model was trained with are missing from the folder, or are not used unless asked for."""
    own = {name: text for name, text in patient.encoder.prompts.items() if text}
    named = " ".join(str(part) for part in (patient.root.name, patient.name, patient.config.get("_name_or_path", "")))
    wanted = next((found for part, found in TRAINED_WITH.items() if re.search(part, named, re.IGNORECASE)), {})
    wanted = wanted or {found.strip(": "): found for found in sorted(set(IN_CARD.findall(patient.card)))}
    missing = [text for text in wanted.values() if not any(text.strip() in known for known in own.values())]
    if missing:
        yield Finding(
            f"The model was trained with {' and '.join(map(repr, wanted.values()))} before its texts, by its name or "
            f"its card, and config_sentence_transformers.json lacks {' and '.join(map(repr, missing))}.",
            f'model.prompts = {wanted}; model.default_prompt_name = "{next(iter(wanted))}"; model.save(…)',
            figures={"missing": missing},
        )
    elif set(own) & {"query"} and set(own) & set(NEGATIVE) and patient.encoder.default_prompt_name is None:
        yield Finding(
            f"The model has prompts for both sides ({', '.join(map(repr, own.values()))}), and `encode` puts none of "
            "them before a text.",
            "Encode with encode_query and encode_document, or encode(…, prompt_name=…); or set default_prompt_name in "
            "config_sentence_transformers.json.",
            figures={"prompts": own},
        )


def pooling(patient: Patient) -> Iterator[Finding]:
    """The pooling that is computed is another one than the model card's, or does not fit the model."""
    if patient.pooling is None and (patient.root / "1_Pooling" / "config.json").is_file():
        yield Finding(
            "The folder 1_Pooling is there, and modules.json does not list it: its pooling is not computed.",
            "Get modules.json again from where the model came from.",
        )
        return
    width, size = _width(patient), patient.config.get("hidden_size")
    if width is not None and isinstance(size, int) and width != size and len(patient.modules) > 1:
        yield Finding(
            f"The Pooling module is for vectors of {width} dimensions, and the model's have {size}.",
            "Get the folder of the Pooling module again from where the model came from.",
            figures={"pooling": width, "model": size},
        )
        return
    if patient.modules and patient.pooling is None:
        return  # no transformer that is pooled: a table of token vectors, or a recipe's own module
    computed, said = mode_of(patient), _modes_of_card(patient.card)
    if said and computed not in said:
        yield Finding(
            f"{computed} pooling is computed, and the model card says {' or '.join(sorted(said))}.",
            f"{_with_pooling(patient, min(said))}, where the card is right.",
            figures={"computed": computed, "card": sorted(said)},
        )


def mode_of(patient: Patient) -> str:
    """The pooling that sentence-transformers computes; mean where the folder says nothing."""
    found = patient.pooling or {}
    if isinstance(found.get("pooling_mode"), str):
        return str(found["pooling_mode"])
    return "+".join(name for flag, name in MODES.items() if found.get(f"pooling_mode_{flag}")) or "mean"


def _width(patient: Patient) -> int | None:
    found = patient.pooling or {}
    width = found.get("embedding_dimension", found.get("word_embedding_dimension"))
    return width if isinstance(width, int) else None


def _modes_of_card(card: str) -> set[str]:
    """What the card says of the pooling: the modules that it prints, otherwise its sentences and code."""
    printed = {MODES[flag] for flag in FLAG.findall(card) if flag in MODES} | set(MODE.findall(card))
    return printed or {re.sub("[- ]", "", found.lower()) for found in PHRASE.findall(card)}


def _with_pooling(patient: Patient, mode: str) -> str:
    """What gives the model this pooling and changes nothing else of it."""
    if mode not in RECIPES or not isinstance(patient.encoder, Encoder):
        return f'Write "pooling_mode": "{mode}" for the other keys of this name into the config.json of the Pooling'
    recipe = replace(Recipe.parse(RECIPES[mode]), shaping=patient.encoder.recipe.shaping)
    return patient.command(f"essent save -m MODEL -r {shlex.quote(str(recipe))} -o mended")


def verification(patient: Patient) -> Iterator[Finding]:
    """A folder that essent saved does not give its golden vectors back, or one of its files has changed."""
    if not patient.saved:
        return
    try:
        verify(patient.name)
    except VerificationError as error:
        yield Finding(str(error), "Get the folder again from where it came from, or save the model once more.")
