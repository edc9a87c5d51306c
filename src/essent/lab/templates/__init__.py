"""Search for templates: slot by slot in a grammar (PromptBERT 4.2), or among candidates that a T5 generates."""

from essent._core.lazy import needs_torch

with needs_torch(__name__):
    from essent.lab.templates.generate import Candidate, Definition, Generator, generate_templates
    from essent.lab.templates.search import (
        PROMPT_BERT,
        GeneratedSearch,
        Step,
        TemplateSearch,
        search_candidates,
        search_templates,
    )
    from essent.selection.space import Grammar

__all__ = [
    "PROMPT_BERT",
    "Candidate",
    "Definition",
    "GeneratedSearch",
    "Generator",
    "Grammar",
    "Step",
    "TemplateSearch",
    "generate_templates",
    "search_candidates",
    "search_templates",
]
