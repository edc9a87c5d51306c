"""Folders that try to have code run, files outside read, or anything downloaded; code that runs writes a marker."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

PAYLOAD = """
from pathlib import Path
Path({marker!r}).write_text("ran")
from transformers import BertConfig, BertModel, BertTokenizerFast
class Evil(BertConfig):
    model_type = "evil"
class EvilModel(BertModel):
    config_class = Evil
class EvilTokenizer(BertTokenizerFast):
    pass
class EvilModule:
    @classmethod
    def load(cls, *arguments, **options):
        return cls()
"""
Change = Callable[[Path, Path], object]  # of a folder; the second path is the marker


class Pickled:
    """Runs when it is read without `weights_only`."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.marker, "ran")


def edit(path: Path, **values: Any) -> None:
    """Change keys of a JSON file, which is made where there is none."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**content, **values}))


def code(file: Path, marker: Path) -> None:
    """Write a module of Python, and its folder if it is missing."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(PAYLOAD.format(marker=str(marker)))


def set_keys(name: str, **values: Any) -> Change:
    return lambda folder, _: edit(folder / name, **values)


def add_code(name: str = "payload.py") -> Change:
    return lambda folder, marker: code(folder / name, marker)


def list_module(**values: str) -> Change:
    """Change the last module of modules.json; one with a type is added."""

    def change(folder: Path, _: Path) -> None:
        listed = json.loads((folder / "modules.json").read_text())
        if "type" in values:
            listed.append({"idx": 9, "name": "9", "path": ""})
        listed[-1].update(values)
        (folder / "modules.json").write_text(json.dumps(listed))

    return change


def pickle_weights(name: str) -> Change:
    return lambda folder, marker: (folder / name).write_bytes(pickle.dumps(Pickled(marker)))


def move_outside(name: str, link: str | None) -> Change:
    """Move a file or folder out of the model's folder, with a link in the folder if it has a name."""

    def change(folder: Path, _: Path) -> None:
        target = (folder / name).rename(folder.parent / f"outside-{Path(name).name}")
        if link:
            (folder / link).symlink_to(target)

    return change


def set_route(name: str, kind: str) -> Change:
    return set_keys("router_config.json", types={name: kind})


def list_a_library(folder: Path, marker: Path) -> None:
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.module.torch"}]
    (folder / "modules.json").write_text(json.dumps(listed))
    torch.save(Pickled(marker), folder / "pytorch_model.bin")


def read_a_secret(folder: Path, _: Path) -> None:
    (folder.parent / "secret.txt").write_text("secret\n")
    edit(folder / "special_tokens_map.json", vocab_file=str(folder.parent / "secret.txt"))


def make_a_pipe(folder: Path, _: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    os.mkfifo(folder / "tokenizer_config.json")


def replace_code(folder: Path, marker: Path) -> None:
    for file in [folder / "essent_module.py", *(folder / "code").rglob("*.py")]:
        code(file, marker)


MODEL = {"auto_map": {"AutoConfig": "payload.Evil", "AutoModel": "payload.EvilModel"}}
TOKENIZER = {"auto_map": {"AutoTokenizer": ["payload.EvilTokenizer", "payload.EvilTokenizer"]}}
TRUST = {"trust_remote_code": True}
KERNEL = {"attn_implementation": "somebody/kernel"}
SETTINGS, ROUTE, WORDS = "sentence_bert_config.json", "query_0_Transformer", "0_WordEmbeddings"
PARTS = {"metadata": {}, "weight_map": {"embeddings.word_embeddings.weight": "../outside-model.safetensors"}}
OUTSIDE = "outside the model's folder"

# Kind of the folder (plain, stages, router, stock, own, rows, table), words of the error ("": none), what is done.
ATTACKS: dict[str, tuple[Any, ...]] = {
    "settings_with_trust": (
        "stock", r"sentence_bert_config\.json.*trust_remote_code.* must be False", add_code(),
        set_keys("config.json", **MODEL), set_keys(SETTINGS, model_kwargs={**TRUST, "add_pooling_layer": False}),
    ),
    "a_configuration_of_its_own": (
        "plain", "the key 'auto_map' would run code", add_code(),
        set_keys("config.json", model_type="evil", **MODEL),
    ),
    "a_tokenizer_of_its_own": (  # transformers' own takes its place
        "plain", "", add_code(), set_keys("tokenizer_config.json", tokenizer_class="EvilTokenizer", **TOKENIZER)
    ),
    "a_module_of_its_own": (
        "stock", r"payload\.EvilModule.* would run code\. Read this code, and if you trust it, .*trust_remote_code=",
        add_code(), list_module(type="payload.EvilModule"),
    ),
    "a_module_of_a_newer_version": (
        "stock", r"Upgrade: pip install -U sentence-transformers\.$",
        list_module(type="sentence_transformers.base.modules.Invented", new_flag="1"),
    ),
    "an_unsupported_key": ("stages", "pooling_dropout", set_keys("1_Pooling/config.json", pooling_dropout=0.1)),
    "settings_after_an_empty_file": (  # sentence-transformers reads the next of seven files if one is empty
        "plain", r"sentence_roberta_config\.json.*tokenizer_file", set_keys(SETTINGS),
        set_keys("sentence_roberta_config.json", tokenizer_args={"tokenizer_file": "/elsewhere.json"}),
    ),
    "a_library_as_module": ("plain", "not one of sentence-transformers' modules", list_a_library),
    "a_module_outside": ("stages", OUTSIDE, list_module(path="../model/2_Dense")),
    "an_activation_of_its_own": (
        "stages", "activation_function", set_keys("2_Dense/config.json", activation_function="payload.Evil")
    ),
    "pickled_weights": (
        "plain", "pickled weights", move_outside("model.safetensors", None), pickle_weights("pytorch_model.bin")
    ),
    "parts_outside": (
        "plain", "weight_map names", move_outside("model.safetensors", None),
        set_keys("model.safetensors.index.json", **PARTS),
    ),
    "weights_by_another_name": (
        "plain", "transformers_weights", pickle_weights("weights.bin"),
        set_keys("config.json", transformers_weights="weights.bin"),
    ),
    "a_tokenizer_outside": (
        "stock", "tokenizer_name_or_path", set_keys(SETTINGS, tokenizer_name_or_path="/elsewhere")
    ),
    "a_vocabulary_outside": ("plain", "vocab_file", read_a_secret),
    "arguments_for_the_tokenizer": (
        "plain", "init_inputs", set_keys("tokenizer_config.json", init_inputs=["/etc/hostname"])
    ),
    "another_tokenizer_file": (
        "plain", "fast_tokenizer_files",
        set_keys("tokenizer_config.json", fast_tokenizer_files=["../tokenizer.4.0.json"]),
    ),
    "no_room_for_tokens": ("plain", "model_max_length", set_keys("tokenizer_config.json", model_max_length=-5)),
    "a_path_as_new_setting": (
        "stock", r"config_kwargs\.something_new", set_keys(SETTINGS, config_kwargs={"something_new": "../elsewhere"})
    ),
    "a_vocabulary_outside_in_a_nested_setting": (
        "stock", r"processor_kwargs\.nested\.deeper\.vocab_file",
        set_keys(SETTINGS, processor_kwargs={"nested": [{"deeper": {"vocab_file": "secret.txt"}}]}),
    ),
    "a_kernel_of_the_hub_in_a_list": ("stages", "attn_implementation", set_keys("config.json", parts=[KERNEL])),
    "a_route_of_its_own": (
        "router", r"payload\.EvilModule.* would run code", add_code(),
        set_route("query_9_Evil", "payload.EvilModule"),
    ),
    "a_route_outside": ("router", OUTSIDE, set_route("../elsewhere", "sentence_transformers.models.Transformer")),
    "a_router_in_itself": ("router", "inside another", set_route(".", "sentence_transformers.models.Router")),
    "routes_outside": ("router", "link", move_outside("router_config.json", "router_config.json")),
    "an_adapter": (
        "plain", "adapter",
        set_keys("adapter_config.json", peft_type="LORA", base_model_name_or_path="somebody/else", r=4),
    ),
    "a_quantised_model": (
        "plain", "quantization_config",
        set_keys("config.json", quantization_config={"quant_method": "hqq", "quant_config": {}}),
    ),
    "a_kernel_of_the_hub": (
        "own", "_attn_implementation", set_keys("config.json", _attn_implementation="somebody/kernel")
    ),
    "a_processor_of_its_own": (
        "plain", "the key 'auto_map' would run code", add_code(),
        *(
            set_keys(f"{name}_config.json", auto_map={f"Auto{kind}": "payload.EvilTokenizer"})
            for name, kind in (
                ("processor", "Processor"), ("preprocessor", "ImageProcessor"), ("video_preprocessor", "VideoProcessor")
            )
        ),
    ),
    "generation_of_its_own": (  # nothing is generated
        "plain", "", add_code("custom_generate/generate.py"),
        set_keys("generation_config.json", custom_generate="payload", **TRUST)
    ),
    "a_link_outside": ("stock", "link", move_outside("config.json", "config.json")),
    "a_folder_outside": ("stages", "link", move_outside("2_Dense", "2_Dense")),
    "the_state_outside": ("own", "link", move_outside("essent", "essent")),
    "weights_linked_under_a_second_name": (
        "plain", "link", move_outside("model.safetensors", "weights.safetensors"),
        set_keys("config.json", transformers_weights="weights.safetensors"),
    ),
    "a_configuration_outside": (
        "own", r"config_kwargs\._configuration_file", set_keys("../secret.json"),
        set_keys(SETTINGS, config_kwargs={"_configuration_file": "../secret.json"}),
    ),
    "a_configuration_of_a_version_outside": (
        "plain", "configuration_files", set_keys("config.json", configuration_files=["../config.4.0.0.json"])
    ),
    "a_pipe": ("plain", "pipe", make_a_pipe),
    "a_word_tokenizer_of_its_own": (
        "rows", "wordembedding_config.json|tokenizer_class", add_code(),
        set_keys(f"{WORDS}/wordembedding_config.json", tokenizer_class="payload.EvilTokenizer"),
    ),
    "the_tokenizer_of_words": (
        "rows", "auto_map", add_code(f"{WORDS}/payload.py"),
        set_keys(f"{WORDS}/tokenizer_config.json", tokenizer_class="Evil", **TOKENIZER),
    ),
    "the_configuration_of_rows": (  # the configuration's own class is known
        "rows", "", add_code("essent/payload.py"), set_keys("essent/config.json", **MODEL)
    ),
    "the_saved_tokenizer": (
        "rows", "auto_map", add_code("essent/tokenizer/payload.py"),
        set_keys("essent/tokenizer/tokenizer_config.json", tokenizer_class="Evil", **TOKENIZER),
    ),
    "foreign_code_in_the_folder": ("own", "", replace_code),  # essent runs its own code
    "an_unknown_similarity": (
        "table", "similarity_fn_name",
        set_keys("config_sentence_transformers.json", similarity_fn_name="payload.Evil"),
    ),
}  # fmt: skip


def attack(name: str, folder: Path, marker: Path) -> None:
    for change in ATTACKS[name][2:]:
        change(folder, marker)
