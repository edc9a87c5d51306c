"""`essent lab`: its commands."""

from cyclopts import App

from essent.cli.lab.explain import bias, mask
from essent.cli.lab.minimal_pairs import evaluate
from essent.cli.lab.minimal_pairs_build import build, check, fit, sheet
from essent.cli.lab.pretrain import pretrain
from essent.cli.lab.reproduce import reproduce
from essent.cli.lab.templates import templates

lab = App(name="lab", help="Research: minimal pairs, published tables, pretraining.", help_epilogue="", sort_key=99)
explain_app = App(name="explain", help="Look into a model: predictions at a mask, biases of its token embeddings.")
pairs_app = App(name="minimal-pairs", help="Minimal pairs: which changes of a sentence does a model notice?")
explain_app.command(mask)
explain_app.command(bias)
pairs_app.command(evaluate)
pairs_app.command(build)
pairs_app.command(check)
pairs_app.command(sheet)
pairs_app.command(fit)
lab.command(pairs_app)
lab.command(reproduce)
lab.command(explain_app)
lab.command(pretrain)
lab.command(templates)
