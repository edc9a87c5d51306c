"""Published recipes, one row each: name, text form, paper, section.

Templates are stored byte-exact: straight and curly quotes are different tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

SLOT, TOKENS_SLOT, MASK = (
    "{text}",
    "{tokens}",
    "[MASK]",
)  # {text}: the text is filled in; {tokens}: its tokens are inserted
TEMPLATES: dict[str, str] = {
    "T0": "This sentence: “{text}” means [MASK].",
    "T1": "This sentence: “{text}” means [MASK][MASK].",
    "T2": "This sentence: “{text}” means “[MASK][MASK]” and is about [MASK].",
    "T3": "This sentence from the paraphrase dictionary: “{text}” means “[MASK]”, which is about [MASK].",
    "T4": "This sentence from the dictionary: “{text}” means “[MASK]” and is about [MASK], "
    "which is a synonym for [MASK].",
    "bert": 'This sentence : "{text}" means [MASK] .',
    "roberta": "This sentence : ' {text} ' means [MASK] .",
    "one-word": 'This sentence : "{tokens}" means in one word : "',
    "prompteol": 'This sentence : "{text}" means in one word:"',
    "prompteol-example": 'This sentence : "A jockey riding a horse." means in one word:"Equestrian".'
    'This sentence : "{text}" means in one word:"',
    "pretended-cot": 'After thinking step by step , this sentence : "{text}" means in one word:"',
    "knowledge": "The essence of a sentence is often captured by its main subjects and actions, while descriptive "
    "terms provide additional but less central details. With this in mind , this sentence : "
    '"{text}" means in one word:"',
    "prompt-sth": 'This sentence : "{text}" means something',
    "prompt-sum": 'This sentence : "{text}" can be summarized as',
    "about": "This sentence from the dictionary: “{text}” is about the",
    "about-mask": "This sentence from the dictionary: “{text}” is about [MASK]",
    "echo": "Rewrite the sentence: {tokens}, rewritten sentence: {tokens}",
    "metaeol-1": "In this task, you're presented with a text excerpt. Your task is to categorize the excerpt into "
    "a broad category such as 'Education', 'Technology', 'Health', 'Business', 'Environment', 'Politics', or "
    "'Culture'. These categories help in organizing content for better accessibility and targeting. For this "
    'task, this sentence : "{text}" should be classified under one general category in one word:"',
    "metaeol-2": "In this task, you're given a statement and you need to determine whether it's presenting an "
    "'Opinion' or a 'Fact'. This distinction is vital for information verification, educational purposes, and "
    'content analysis. For this task, this sentence : "{text}" discriminates between opinion and fact in one '
    'word:"',
    "metaeol-3": "In this task, you're given a review from an online platform. Your task is to generate a rating "
    "for the product based on the review on a scale of 1-5, where 1 means 'extremely negative' and 5 means "
    '\'extremely positive\'. For this task, this sentence : "{text}" reflects the sentiment in one word:"',
    "metaeol-4": "In this task, you're reading a personal diary entry. Your task is to identify the predominant "
    'emotion expressed, such as joy, sadness, anger, fear, or love. For this task, this sentence : "{text}" '
    'conveys the emotion in one word:"',
    "metaeol-5": "In this task, you're presented with two sentences. Your task is to assess whether the sentences "
    "convey the same meaning. Use 'identical', 'similar', 'different', or 'unrelated' to describe the "
    'relationship. To enhance the performance of this task, this sentence : "{text}" means in one word:"',
    "metaeol-6": "In this task, you're given a sentence and a phrase. Your task is to determine if the phrase can "
    "be a contextual synonym within the given sentence. Options include 'yes', 'no', or 'partially'. To "
    'enhance the performance of this task, this sentence : "{text}" means in one word:"',
    "metaeol-7": "In this task, you're examining a news article. Your task is to extract the most critical fact "
    'from the article. For this task, this sentence : "{text}" encapsulates the key fact in one word:"',
    "metaeol-8": "In this task, you're reviewing a scientific abstract. Your task is to identify the main "
    "entities (e.g., proteins, diseases) and their relations (e.g., causes, treats). For this task, this "
    'sentence : "{text}" highlights the primary entity or relation in one word:"',
}


@dataclass(frozen=True)
class NamedRecipe:
    """A published method; `{}` in `text` stands for Ditto's attention head, the only argument of any method.

    Example:
        >>> from essent.recipe import NAMED
        >>> ditto = NAMED["ditto"]
        >>> ditto.form, ditto.fields, ditto.paper
        ('ditto:HEAD', 'layers=0+L weights=ditto:HEAD', 'Ditto (Chen et al. 2023)')
    """

    name: str
    text: str
    paper: str
    section: str
    about: str

    @property
    def argument(self) -> str:
        """Name of the argument; "" for a recipe without one."""
        return "head" if "{}" in self.text else ""

    @property
    def form(self) -> str:
        """Text form with a placeholder for the argument: `mean`, `ditto:HEAD`."""
        return f"{self.name}:{self.argument.upper()}" if self.argument else self.name

    @property
    def instance(self) -> str:
        """Text form with an example of the argument: `mean`, `ditto:1-10`."""
        return f"{self.name}:1-10" if self.argument else self.name

    @property
    def fields(self) -> str:
        """Fields of the recipe: `layers=0+L weights=ditto:HEAD`."""
        return self.text.format(self.argument.upper())


DITTO = "Ditto (Chen et al. 2023)"
PROMPT_BERT = "PromptBERT (Jiang et al. 2022)"
PROMPT_EOL = "PromptEOL (Jiang et al. 2023)"
ECHO = "Echo (Springer et al. 2025)"
META_EOL = "MetaEOL (Lei et al. 2024)"
PRETENDED_COT = "Pretended CoT, Knowledge (Zhang et al. 2024)"
ESSENT = "essent"
STANKEVICIUS = "Stankevičius & Lukoševičius 2024"

NAMED: dict[str, NamedRecipe] = {
    row.name: row
    for row in (
        NamedRecipe("mean", "layers=L", "all", "last avg.", "mean of the last layer"),
        NamedRecipe("cls", "weights=cls", "all", "[CLS]", "first token of the last layer, before the pooler"),
        NamedRecipe("last-token", "weights=last", "SGPT (Muennighoff 2022)", "3.1", "last token of the last layer"),
        NamedRecipe("static", "layers=static", PROMPT_BERT, "Table 1", "mean of the input word embeddings"),
        NamedRecipe("first-last", "layers=0+L", DITTO, "Table 1", "mean of the embedding output and the last layer"),
        NamedRecipe("last2", "layers=L-1+L", "SimCSE (Gao et al. 2021)", "code", "mean of the last two layers"),
        NamedRecipe(
            "static-remove-biases",
            "layers=static weights=remove",
            PROMPT_BERT,
            "3, A.1, Table 3",
            "input word embeddings without frequent, sub-word and punctuation tokens",
        ),
        NamedRecipe("first-last-idf", "layers=0+L weights=idf", STANKEVICIUS, "3.3", "first-last weighted by idf"),
        NamedRecipe("first-last-tfidf", "layers=0+L weights=tfidf", DITTO, "Table 1", "first-last weighted by tf-idf"),
        NamedRecipe(
            "ditto",
            "layers=0+L weights=ditto:{}",
            DITTO,
            "3, Tables 1, 2",
            "first-last weighted by the diagonal of one attention head, counted from 1",
        ),
        NamedRecipe("static-ditto", "layers=static weights=ditto:{}", DITTO, "Table 1", "Ditto on word embeddings"),
        NamedRecipe("last-ditto", "layers=L weights=ditto:{}", DITTO, "Table 1", "Ditto on the last layer"),
        NamedRecipe("prompt", "template=bert weights=mask", PROMPT_BERT, "4.1, eq. 2", "the [MASK] of a prompt (BERT)"),
        NamedRecipe(
            "prompt-roberta", "template=roberta weights=mask", PROMPT_BERT, "4.2", "the <mask> of a prompt (RoBERTa)"
        ),
        NamedRecipe(
            "prompt-denoised",
            "template=bert layers=L-bias weights=mask",
            PROMPT_BERT,
            "4.3",
            "the prompt's [MASK] less the same template's with an empty slot",
        ),
        NamedRecipe(
            "prompt-topk",
            "template=bert layers=topk:200 weights=mask",
            PROMPT_BERT,
            "4.1, eq. 3, Table 9",
            "word embeddings of the 200 most probable tokens at the prompt's [MASK], weighted by probability",
        ),
        NamedRecipe(
            "prompt-topk-denoised",
            "template=bert layers=topk:200-bias weights=mask",
            PROMPT_BERT,
            "6.1, Table 9",
            "the same of the denoised [MASK]",
        ),
        NamedRecipe("t0-mean", "template=T0", STANKEVICIUS, "4.2", "mean of all tokens of template T0"),
        NamedRecipe("t4-mean", "template=T4", STANKEVICIUS, "4.2", "mean of all tokens of template T4"),
        NamedRecipe(
            "t4-idf-quantile",
            "template=T4 weights=idf | quantile",
            STANKEVICIUS,
            "Table 4",
            "T4 weighted by the task's idf, mapped to uniform quantiles",
        ),
        NamedRecipe(
            "first-last-idf-zscore", "layers=0+L weights=idf | zscore", STANKEVICIUS, "Table 4", "idf, then z-score"
        ),
        NamedRecipe("layers-1-2-L", "layers=1+2+L", STANKEVICIUS, "4.3", "mean of layers 1, 2 and the last"),
        NamedRecipe("layers-0-1-2-L", "layers=0+1+2+L", STANKEVICIUS, "4.3", "mean of layers 0, 1, 2 and the last"),
        NamedRecipe(
            "whitening", "layers=0+L | whiten", "BERT-whitening (Su et al. 2021)", "3", "first-last, PCA-whitened"
        ),
        NamedRecipe(
            "flow", "layers=0+L | flow", "BERT-flow (Li et al. 2020)", "3", "first-last through a trained flow"
        ),
        NamedRecipe(
            "random",
            "layers=random weights=content",
            STANKEVICIUS,
            "3.2.5",
            "RE: a random vector for every token, the baseline; special tokens left out, as its figures are reached",
        ),
        NamedRecipe("prompteol", "template=prompteol weights=last", PROMPT_EOL, "3.1", "last token of a prompt"),
        NamedRecipe(
            "prompteol-example",
            "template=prompteol-example weights=last",
            PROMPT_EOL,
            "3.2, code",
            "prompteol with one example in the context; OPT's of the published code",
        ),
        NamedRecipe(
            "pretended-cot",
            "template=pretended-cot layers=L-1 weights=last",
            PRETENDED_COT,
            "3.1, code",
            "last token of a prompt that pretends to think, second to last layer",
        ),
        NamedRecipe(
            "knowledge",
            "template=knowledge layers=L-1 weights=last",
            PRETENDED_COT,
            "3.2, code",
            "last token of a prompt that describes what matters, second to last layer",
        ),
        NamedRecipe(
            "prompt-sth",
            "template=prompt-sth weights=last",
            PRETENDED_COT,
            "code",
            "its prompt for training",
        ),
        NamedRecipe("prompt-sum", "template=prompt-sum weights=last", PRETENDED_COT, "code", "the second"),
        NamedRecipe("echo", "template=echo weights=second", ECHO, "3, Figure 1", "the repetition of a repeated text"),
        NamedRecipe(
            "metaeol",
            f"template={'+'.join(name for name in TEMPLATES if name.startswith('metaeol-'))} weights=last",
            META_EOL,
            "3, code",
            "mean of the last tokens of eight prompts, each with another task",
        ),
        NamedRecipe("about", "template=about weights=last", ESSENT, "T4", "last token of a prompt with T4's words"),
        NamedRecipe("about-mask", "template=about-mask weights=mask", ESSENT, "T4", "the mask that ends such a prompt"),
        NamedRecipe(
            "one-word",
            "template=one-word weights=last",
            ESSENT,
            "PromptEOL",
            "prompteol with spaces around its last colon, and the text tokenized alone",
        ),
    )
}
