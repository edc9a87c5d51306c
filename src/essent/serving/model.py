"""A model that is served: what is known of it, how it reads texts, and the encoder itself where that is static."""

from __future__ import annotations

from essent.serving.errors import RequestError
from essent.serving.prepared import Prepared
from essent.serving.static import StaticModel
from essent.static.encoder import StaticEncoder


class Model:
    """A model that is served."""

    def __init__(self, prepared: Prepared, number: int, started: int) -> None:
        self.about = prepared
        self.number = number  # in the engine; -1 for a static encoder
        self.created = started
        self.reading = prepared.reading
        self.static = StaticModel(StaticEncoder.load(prepared.place)) if prepared.engine == "static" else None

    @property
    def name(self) -> str:
        """What requests call it."""
        return self.about.name

    def prompt(self, name: str | None) -> str:
        """The text of a prompt, or of the model's default prompt.

        Raises:
            RequestError: no such prompt.
        """
        prompts = self.about.prompts
        if name is not None and name not in prompts:
            raise RequestError(
                400, f"There is no prompt of that name; {self.name} has {', '.join(map(repr, prompts)) or 'none'}.",
                param="prompt_name",
            )  # fmt: skip
        chosen = self.about.prompt_name if name is None else name
        return prompts.get(chosen, "") if chosen else ""
