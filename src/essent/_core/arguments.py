"""Types and checks of shared arguments: names and folders, devices, sizes, prompts, a model's options.

Libraries accept most wrong values and fail later, or return nothing (`truncate_dim=0`).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from essent._core.registry import did_you_mean
from essent._core.texts import check_texts
from essent.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

ModelLike: TypeAlias = "str | Path | SentenceTransformer"  # a hub name, a folder or file, a loaded model
TextsLike: TypeAlias = "Iterable[str]"  # a list, a column, an array, a generator; see `essent._core.texts.check_texts`
Encode = TypeVar("Encode", bound=Callable[..., Any])
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
CHOICES: dict[str, tuple[str | None, ...]] = {  # allowed values of arguments of `encode`
    "output_value": ("sentence_embedding", "token_embeddings", None),
    "precision": ("float32", "int8", "uint8", "binary", "ubinary", None),
}


def check_path(path: Any, name: str = "path", expected: str = "a str or a Path") -> str:
    """Return a folder, a file or the name of a model as str.

    Raises:
        InputError: another type.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise InputError(f"{name}={path!r:.60} is {type(path).__name__}: give {expected}.")
    return os.fspath(path)


def check_model(model: Any) -> str:
    """Return the name or the folder of a model as str; see `check_path`."""
    return check_path(model, "model", "the name or the folder of a model, or a loaded one")


def check_size(size: Any, name: str, least: int = 1) -> int:
    """Return a size, also one of NumPy, as int; raise an error if it is not a whole number of at least `least`.

    Raises:
        InputError: names the argument and its value.
    """
    if not isinstance(size, Integral) or isinstance(size, bool) or size < least:
        raise InputError(f"{name}={size!r}: must be a whole number of at least {least}.")
    return int(size)


def check_device(device: Any) -> None:
    """Raise an error for a device that cannot compute on this machine; None means the best device.

    Raises:
        InputError: names the devices of this machine.
    """
    if device is None:
        return
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError) as error:  # torch's type depends on the device
        reason = str(error).partition("\n")[0].rstrip(".")
        best = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        raise InputError(
            f"device={device!r} cannot be used here ({reason:.100}). This machine has {best or 'cpu'}."
        ) from None


def check_prompt(prompt: Any, prompt_name: Any, prompts: Mapping[str, Any]) -> None:
    """Raise an error for a prompt that is not a str, and for a prompt name that the model does not have.

    Raises:
        InputError: lists the model's prompts.
    """
    if not isinstance(prompt, (str, type(None))):
        raise InputError(f"prompt={prompt!r:.60}: must be a str, which is put before every text.")
    if prompt is None and prompt_name is not None and prompt_name not in prompts:
        names = f"must be one of {', '.join(map(repr, prompts))}" if prompts else "the model has no prompts"
        raise InputError(f"prompt_name={prompt_name!r:.60}: {names}.")


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check a model's options, SentenceTransformer's keyword arguments, before anything is read.

    `torch_dtype`, the former name of `dtype` in transformers, becomes `dtype`.

    Raises:
        InputError: an unknown option, or a value that no model can be loaded with.
    """
    from sentence_transformers import SentenceTransformer

    known = list(inspect.signature(SentenceTransformer).parameters)
    if unknown := [key for key in options if key not in known]:
        raise InputError(f"Unknown option {unknown[0]!r}. {did_you_mean(str(unknown[0]), known)}")
    check_device(options.get("device"))
    if options.get("truncate_dim") is not None:
        check_size(options["truncate_dim"], "truncate_dim")
    prompts = {} if options.get("prompts") is None else options["prompts"]
    if not isinstance(prompts, Mapping) or not all(isinstance(text, (str, type(None))) for text in prompts.values()):
        raise InputError(f"prompts={prompts!r:.60}: must be a dict from names to texts, such as {{'query': '…'}}.")
    if (similarity := options.get("similarity_fn_name")) is not None and similarity not in SIMILARITIES:
        raise InputError(f"similarity_fn_name={similarity!r}: must be one of {', '.join(SIMILARITIES)}.")
    settings = options.get("model_kwargs")
    if settings is None:
        return dict(options)
    if not isinstance(settings, Mapping):
        raise InputError(f"model_kwargs={settings!r:.60}: must be a dict, such as {{'dtype': 'float32'}}.")
    import torch

    named = dict(settings)
    if "torch_dtype" in named:
        named.setdefault("dtype", named.pop("torch_dtype"))
    dtype = named.get("dtype")
    if dtype not in (None, "auto") and not isinstance(getattr(torch, str(dtype).split(".")[-1], 0), torch.dtype):
        raise InputError(f"model_kwargs: dtype={dtype!r} must be 'auto', or a type such as 'float32' or 'bfloat16'.")
    return {**options, "model_kwargs": named}


def with_checked_arguments(encode: Encode) -> Encode:
    """Wrap SentenceTransformer's `encode` to check its arguments and accept the inputs of `check_texts`, or one str."""
    signature = inspect.signature(encode)

    @wraps(encode)
    def checked(self: Any, *positional: Any, **named: Any) -> Any:
        if "sentences" in named:  # the former name in sentence-transformers
            named["inputs"] = named.pop("sentences")
        arguments = signature.bind(self, *positional, **named).arguments
        check_encode(self.prompts, arguments)
        texts = arguments["inputs"]
        arguments["inputs"] = texts if isinstance(texts, str) else check_texts(texts)
        return encode(**arguments.pop("kwargs", {}), **arguments)

    return cast("Encode", checked)


def check_encode(prompts: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raise InputError for an argument of `encode`, of those that are present, with a value that is not allowed."""
    if "batch_size" in arguments:
        check_size(arguments["batch_size"], "batch_size")
    if arguments.get("truncate_dim") is not None:
        check_size(arguments["truncate_dim"], "truncate_dim")
    for argument, choices in CHOICES.items():
        if (choice := arguments.get(argument, choices[0])) not in choices:
            raise InputError(f"{argument}={choice!r:.60}: must be one of {', '.join(map(repr, choices))}.")
    check_prompt(arguments.get("prompt"), arguments.get("prompt_name"), prompts)
    device = arguments.get("device")
    for name in device if isinstance(device, list) else [device]:
        check_device(name)
