"""What other servers would make of the folder: text-embeddings-inference (TEI) 1.9 and vLLM, by their own sources.

TEI reads 1_Pooling/config.json by its boolean keys (cls, mean, last token) and nothing else of the modules; without
that file it takes CLS for every BERT. vLLM looks for modules of sentence_transformers.models by their full class path,
and for the first key of the pooling's file that is true. Neither runs a Dense module or a table of token vectors.
"""

from __future__ import annotations

from collections.abc import Iterator

from essent.verification.files import mode_of
from essent.verification.finding import Finding
from essent.verification.patient import Patient

SERVED = ("Transformer", "Pooling", "Normalize")
SERVED_MODES = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
LEGACY = "sentence_transformers.models."
AGAIN = "essent save -m MODEL --format legacy -o for-servers, or serve it as it is: essent serve MODEL"


def servers(patient: Patient) -> Iterator[Finding]:
    """TEI or vLLM would refuse the folder, or compute other vectors from it."""
    if not (patient.root / "modules.json").is_file() and not (patient.root / "config.json").is_file():
        return
    for says, mend in _found(patient):
        yield Finding(says, patient.command(mend), fault=False)


def _found(patient: Patient) -> Iterator[tuple[str, str]]:
    """What is wrong for servers, and what mends it."""
    if others := [kind for _, _, kind in patient.modules if kind not in SERVED]:
        yield (
            f"TEI and vLLM do not run the module {' and '.join(others)}: they refuse it, or give other vectors.",
            "essent serve MODEL",
        )
        return
    files = ("tokenizer.json", "config.json")
    missing = [name for name in files if not (patient.root / name).is_file()]
    if not list(patient.root.glob("model*.safetensors")):
        missing.append("model.safetensors")
    if missing:
        yield f"{' and '.join(missing)} is missing, without which TEI does not start.", AGAIN
    mode = mode_of(patient)
    yield from _pooling(patient, mode)
    settings = patient.transformer_settings
    if settings and not isinstance(settings.get("max_seq_length"), int):
        yield (
            "sentence_bert_config.json has no max_seq_length, which TEI does not read.",
            f'Write "max_seq_length": {patient.encoder.max_seq_length or 512} into sentence_bert_config.json.',
        )
    if patient.modules and patient.modules[-1][2] != "Normalize":
        yield (
            "The vectors have any length, and TEI scales them to length 1 unless a request says otherwise.",
            'Ask with "normalize": false, or compare by the cosine alone.',
        )


def _pooling(patient: Patient, mode: str) -> Iterator[tuple[str, str]]:
    bert = "bert" in str(patient.config.get("model_type")).lower()
    if not (patient.root / "1_Pooling" / "config.json").is_file():
        if mode != "cls" or not bert:
            does = "computes the CLS token instead, without a word" if bert else "does not start"
            yield f"There is no 1_Pooling/config.json: TEI {does}; what is computed here is {mode} pooling.", AGAIN
        return
    found = patient.pooling or {}
    if mode not in SERVED_MODES:
        yield f"TEI and vLLM do not compute {mode} pooling.", "essent serve MODEL"
    elif not any(key.startswith("pooling_mode_") for key in found):
        yield (
            "1_Pooling/config.json has the key pooling_mode alone: TEI, which reads the older keys, does not start.",
            AGAIN,
        )
    elif (first := next((key for key, value in found.items() if value is True), "")) != SERVED_MODES[mode]:
        yield f"vLLM takes the first key of 1_Pooling/config.json that is true, {first}, for the pooling.", AGAIN
    if other := [path for _, path, kind in patient.modules if kind in SERVED[1:] and path != f"{LEGACY}{kind}"]:
        yield (
            f"vLLM knows modules as {LEGACY}…, and not as {other[0]}: it would leave out the pooling's settings.",
            AGAIN,
        )
