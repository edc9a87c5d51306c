"""Folders that try to have code run, files outside read, or anything downloaded; code that runs writes a marker."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from essent._core.folders.files import has_digests, write_digests

PAYLOAD = """
from pathlib import Path
Path({marker!r}).write_text("ran")
from transformers import BertConfig, BertModel, BertTokenizerFast
class Evil(BertConfig):
    pass
class EvilModel(BertModel):
    pass
class EvilTokenizer(BertTokenizerFast):
    pass
class EvilModule:
    @classmethod
    def load(cls, *arguments, **options):
        return cls()
"""


class Pickled:
    """Runs when it is read without `weights_only`."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.marker, "ran")


@dataclass(frozen=True)
class Attack:
    """What is done to a folder of a kind, and words of the error that it gets."""

    kind: str  # of the folder: plain, stages, router, stock, own, rows, table
    change: Callable[[Path, Path], None]  # folder, marker
    message: str


ATTACKS: dict[str, Attack] = {}


def attack(kind: str, message: str) -> Callable[[Callable[[Path, Path], None]], Callable[[Path, Path], None]]:
    def register(change: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        ATTACKS[change.__name__] = Attack(kind, change, message)
        return change

    return register


def edit(path: Path, **values: Any) -> None:
    """Change keys of a JSON file, which is made where there is none."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**content, **values}))


def code(folder: Path, marker: Path, name: str = "payload.py") -> None:
    (folder / name).write_text(PAYLOAD.format(marker=str(marker)))


def sign(folder: Path) -> None:
    """Whoever writes a folder can write its digests too."""
    if has_digests(folder):
        write_digests(folder)


@attack("stock", "model_kwargs.trust_remote_code|trust_remote_code")
def settings_with_trust(folder: Path, marker: Path) -> None:
    code(folder, marker)
    edit(folder / "config.json", auto_map={"AutoConfig": "payload.Evil", "AutoModel": "payload.EvilModel"})
    edit(folder / "sentence_bert_config.json", model_kwargs={"trust_remote_code": True, "add_pooling_layer": False})


@attack("own", "trust_remote_code")
def config_settings_with_trust(folder: Path, marker: Path) -> None:
    code(folder, marker)
    edit(folder / "config.json", auto_map={"AutoConfig": "payload.Evil", "AutoModel": "payload.EvilModel"})
    edit(folder / "sentence_bert_config.json", config_kwargs={"trust_remote_code": True})


@attack("plain", r"config\.json has the key 'auto_map'")
def a_configuration_of_its_own(folder: Path, marker: Path) -> None:
    code(folder, marker)
    names = {"AutoConfig": "payload.Evil", "AutoModel": "payload.EvilModel"}
    edit(folder / "config.json", model_type="evil", auto_map=names)


@attack("plain", "")  # transformers' own tokenizer takes its place
def a_tokenizer_of_its_own(folder: Path, marker: Path) -> None:
    code(folder, marker)
    names = {"AutoTokenizer": ["payload.EvilTokenizer", "payload.EvilTokenizer"]}
    edit(folder / "tokenizer_config.json", tokenizer_class="EvilTokenizer", auto_map=names)


@attack("stock", "payload.EvilModule")
def a_module_of_its_own(folder: Path, marker: Path) -> None:
    code(folder, marker)
    listed = json.loads((folder / "modules.json").read_text())
    listed.append({"idx": 9, "name": "9", "path": "", "type": "payload.EvilModule"})
    (folder / "modules.json").write_text(json.dumps(listed))


@attack("plain", "not one of sentence-transformers' modules")
def a_library_as_module(folder: Path, marker: Path) -> None:
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.module.torch"}]
    (folder / "modules.json").write_text(json.dumps(listed))
    torch.save(Pickled(marker), folder / "pytorch_model.bin")


@attack("stages", "outside the model's folder")
def a_module_outside(folder: Path, marker: Path) -> None:
    listed = json.loads((folder / "modules.json").read_text())
    listed[-1]["path"] = f"../{folder.name}/2_Dense"
    (folder / "modules.json").write_text(json.dumps(listed))


@attack("stages", "activation_function")
def an_activation_of_its_own(folder: Path, marker: Path) -> None:
    edit(folder / "2_Dense" / "config.json", activation_function="payload.Evil")


@attack("stages", "pickled")
def a_pickled_module(folder: Path, marker: Path) -> None:
    (folder / "2_Dense" / "model.safetensors").unlink()
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(pickle.dumps(Pickled(marker)))


@attack("plain", "pickled weights")
def pickled_weights(folder: Path, marker: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Pickled(marker)))


@attack("stock", "weights_only")
def requested_pickled_weights(folder: Path, marker: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Pickled(marker)))
    edit(folder / "sentence_bert_config.json", model_kwargs={"weights_only": False, "use_safetensors": False})


@attack("plain", "weight_map names")
def parts_outside(folder: Path, marker: Path) -> None:
    outside = folder.parent / "outside.safetensors"
    (folder / "model.safetensors").rename(outside)
    parts = {"embeddings.word_embeddings.weight": f"../{outside.name}"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": parts}))


@attack("plain", "transformers_weights")
def weights_by_another_name(folder: Path, marker: Path) -> None:
    (folder / "weights.bin").write_bytes(pickle.dumps(Pickled(marker)))
    edit(folder / "config.json", transformers_weights="weights.bin")


@attack("stock", "tokenizer_name_or_path")
def a_tokenizer_outside(folder: Path, marker: Path) -> None:
    edit(folder / "sentence_bert_config.json", tokenizer_name_or_path="/elsewhere")


@attack("plain", "vocab_file")
def a_vocabulary_outside(folder: Path, marker: Path) -> None:
    (folder.parent / "secret.txt").write_text("secret\n")
    edit(folder / "special_tokens_map.json", vocab_file=str(folder.parent / "secret.txt"))


@attack("plain", "init_inputs")
def arguments_for_the_tokenizer(folder: Path, marker: Path) -> None:
    edit(folder / "tokenizer_config.json", init_inputs=["/etc/hostname"])


@attack("plain", "fast_tokenizer_files")
def another_tokenizer_file(folder: Path, marker: Path) -> None:
    edit(folder / "tokenizer_config.json", fast_tokenizer_files=["../tokenizer.4.0.json"])


@attack("stock", r"config_kwargs\.something_new")
def a_path_as_new_setting(folder: Path, marker: Path) -> None:
    edit(folder / "sentence_bert_config.json", config_kwargs={"something_new": "../elsewhere"})


@attack("stock", r"processor_kwargs\.nested\.deeper\.vocab_file")
def a_vocabulary_outside_in_a_nested_setting(folder: Path, marker: Path) -> None:
    edit(folder / "sentence_bert_config.json", processor_kwargs={"nested": [{"deeper": {"vocab_file": "secret.txt"}}]})


@attack("stages", "attn_implementation")
def a_kernel_of_the_hub_in_a_list(folder: Path, marker: Path) -> None:
    edit(folder / "config.json", parts=[{"attn_implementation": "somebody/kernel"}])


def route(folder: Path, name: str, kind: str) -> None:
    """Add a module to those of a router."""
    types = json.loads((folder / "router_config.json").read_text())["types"]
    edit(folder / "router_config.json", types={**types, name: kind})


@attack("router", "The code is payload.py of the model itself")
def a_route_of_its_own(folder: Path, marker: Path) -> None:
    code(folder, marker)
    route(folder, "query_9_Evil", "payload.EvilModule")


@attack("router", "outside the model's folder")
def a_route_outside(folder: Path, marker: Path) -> None:
    route(folder, "../elsewhere", "sentence_transformers.models.Transformer")


@attack("router", "inside another")
def a_router_in_itself(folder: Path, marker: Path) -> None:
    route(folder, ".", "sentence_transformers.models.Router")


@attack("router", "pickled weights")
def a_route_with_pickled_weights(folder: Path, marker: Path) -> None:
    (folder / "query_0_Transformer" / "model.safetensors").unlink()
    (folder / "query_0_Transformer" / "pytorch_model.bin").write_bytes(pickle.dumps(Pickled(marker)))


@attack("router", "trust_remote_code")
def route_settings_with_trust(folder: Path, marker: Path) -> None:
    code(folder / "query_0_Transformer", marker)
    edit(folder / "query_0_Transformer" / "sentence_bert_config.json", model_kwargs={"trust_remote_code": True})


@attack("router", "link")
def routes_outside(folder: Path, marker: Path) -> None:
    (folder / "router_config.json").rename(folder.parent / "router-outside.json")
    (folder / "router_config.json").symlink_to(folder.parent / "router-outside.json")


@attack("plain", "adapter")
def an_adapter(folder: Path, marker: Path) -> None:
    edit(folder / "adapter_config.json", peft_type="LORA", base_model_name_or_path="somebody/else", r=4)


@attack("plain", "quantization_config")
def a_quantised_model(folder: Path, marker: Path) -> None:
    edit(folder / "config.json", quantization_config={"quant_method": "hqq", "quant_config": {}})


@attack("own", "_attn_implementation")
def a_kernel_of_the_hub(folder: Path, marker: Path) -> None:
    edit(folder / "config.json", _attn_implementation="somebody/kernel")


@attack("plain", "text_config.attn_implementation")
def a_kernel_of_the_hub_for_a_part(folder: Path, marker: Path) -> None:
    edit(folder / "config.json", text_config={"attn_implementation": "somebody/kernel"})


@attack("plain", r"processor_config\.json and video_preprocessor_config\.json have the key 'auto_map'")
def a_processor_of_its_own(folder: Path, marker: Path) -> None:
    code(folder, marker)
    names = {"AutoProcessor": "payload.EvilTokenizer"}
    edit(folder / "processor_config.json", processor_class="EvilProcessor", auto_map=names)
    edit(folder / "preprocessor_config.json", auto_map={"AutoImageProcessor": "payload.EvilTokenizer"})
    edit(folder / "video_preprocessor_config.json", auto_map={"AutoVideoProcessor": "payload.EvilTokenizer"})


@attack("plain", "")  # nothing is generated
def generation_of_its_own(folder: Path, marker: Path) -> None:
    (folder / "custom_generate").mkdir()
    code(folder / "custom_generate", marker, "generate.py")
    edit(folder / "generation_config.json", custom_generate="payload", trust_remote_code=True)


@attack("stock", "link")
def a_link_outside(folder: Path, marker: Path) -> None:
    (folder / "config.json").rename(folder.parent / "config-outside.json")
    (folder / "config.json").symlink_to(folder.parent / "config-outside.json")


@attack("stages", "link")
def a_folder_outside(folder: Path, marker: Path) -> None:
    (folder / "2_Dense").rename(folder.parent / "dense-outside")
    (folder / "2_Dense").symlink_to(folder.parent / "dense-outside")


@attack("own", "link")
def the_state_outside(folder: Path, marker: Path) -> None:
    (folder / "essent").rename(folder.parent / "state-outside")
    (folder / "essent").symlink_to(folder.parent / "state-outside")


@attack("own", "link")
def the_recipe_outside(folder: Path, marker: Path) -> None:
    (folder / "essent" / "encoder.json").rename(folder.parent / "encoder-outside.json")
    (folder / "essent" / "encoder.json").symlink_to(folder.parent / "encoder-outside.json")


@attack("plain", "link")
def weights_linked_under_a_second_name(folder: Path, marker: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    (folder / "weights.safetensors").symlink_to(folder.parent / "outside.safetensors")
    edit(folder / "config.json", transformers_weights="weights.safetensors")


@attack("own", r"config_kwargs\._configuration_file")
def a_configuration_outside(folder: Path, marker: Path) -> None:
    (folder.parent / "secret.json").write_text("{}")
    edit(folder / "sentence_bert_config.json", config_kwargs={"_configuration_file": "../secret.json"})


@attack("own", r"config_kwargs\.gguf_file")
def another_format(folder: Path, marker: Path) -> None:
    edit(folder / "sentence_bert_config.json", config_kwargs={"gguf_file": "../model.gguf"})


@attack("plain", "configuration_files")
def a_configuration_of_a_version_outside(folder: Path, marker: Path) -> None:
    edit(folder / "config.json", configuration_files=["../config.4.0.0.json"])


@attack("plain", "pipe")
def a_pipe(folder: Path, marker: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    os.mkfifo(folder / "tokenizer_config.json")


@attack("rows", "wordembedding_config.json|tokenizer_class")
def a_word_tokenizer_of_its_own(folder: Path, marker: Path) -> None:
    code(folder, marker)
    edit(folder / "0_WordEmbeddings" / "wordembedding_config.json", tokenizer_class="payload.EvilTokenizer")


@attack("rows", "auto_map")
def the_tokenizer_of_words(folder: Path, marker: Path) -> None:
    code(folder / "0_WordEmbeddings", marker)
    names = {"AutoTokenizer": ["payload.EvilTokenizer", "payload.EvilTokenizer"]}
    edit(folder / "0_WordEmbeddings" / "tokenizer_config.json", tokenizer_class="Evil", auto_map=names)


@attack("rows", "")  # the configuration's own class is known
def the_configuration_of_rows(folder: Path, marker: Path) -> None:
    code(folder / "essent", marker)
    edit(folder / "essent" / "config.json", auto_map={"AutoConfig": "payload.Evil", "AutoModel": "payload.EvilModel"})


@attack("rows", "auto_map")
def the_saved_tokenizer(folder: Path, marker: Path) -> None:
    code(folder / "essent" / "tokenizer", marker)
    names = {"AutoTokenizer": ["payload.EvilTokenizer", "payload.EvilTokenizer"]}
    edit(folder / "essent" / "tokenizer" / "tokenizer_config.json", tokenizer_class="Evil", auto_map=names)


@attack("own", "")  # essent runs its own code
def foreign_code_in_the_folder(folder: Path, marker: Path) -> None:
    for file in [folder / "essent_module.py", *(folder / "code").rglob("*.py")]:
        file.write_text(PAYLOAD.format(marker=str(marker)))


@attack("table", "similarity_fn_name")
def an_unknown_similarity(folder: Path, marker: Path) -> None:
    edit(folder / "config_sentence_transformers.json", similarity_fn_name="payload.Evil")
