"""Everything that essent writes, killed at every write: old or new, never wrong, and the next run leaves nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kill_harness import check_old_or_new, check_resumes, killed_at_every_write, tree_of
from sentence_transformers import SentenceTransformer

import essent
from essent import Encoder
from essent.cli.files import write_vectors
from essent.model.loading import load
from essent.recipe.contexts import Contexts
from essent.recipe.recipe import Recipe
from essent.tasks.pairs import PairTask
from families import CORPUS
from selection_samples import PAIRS

pytestmark = pytest.mark.faults
TASK = PairTask("dev", PAIRS[:15])
VECTORS = np.arange(40, dtype=np.float32).reshape(4, 10)


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("existing", [True, False])
def test_vectors(tmp_path: Path, existing: bool) -> None:
    path = tmp_path / "vectors.npy"
    if existing:
        write_vectors(path, VECTORS)
    assert check_old_or_new(lambda: write_vectors(path, VECTORS + 1), path)


# -- folders ----------------------------------------------------------------------------------------------------------


def averages(value: float) -> Contexts:
    tables = {layer: np.full((50, 8), value, np.float32) for layer in (0, 1)}
    counts = np.arange(50, dtype=np.int64)
    return Contexts(tables, counts, counts, 3, 1, "digest", {"value": value})


def test_averages(tmp_path: Path) -> None:
    folder = tmp_path / "averages"
    averages(1.0).save(folder)
    (folder / "notes.txt").write_text("mine", "utf-8")
    assert check_old_or_new(lambda: averages(2.0).save(folder), folder)


def test_finished_masked_language_model(tmp_path: Path, folder_of: Callable[[str], Path]) -> None:
    """An older model, its checkpoints and what is not essent's: one step, and never a mixture."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    from essent.lab.pretrain.run import finish as write_finished

    source = folder_of("bert")
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    folder = tmp_path / "model"
    (folder / "checkpoints" / "checkpoint-1").mkdir(parents=True)
    (folder / "checkpoints" / "checkpoint-1" / "optimizer.pt").write_bytes(b"state")
    (folder / "notes.md").write_text("mine", "utf-8")
    model.save_pretrained(folder)
    (folder / "spiece.model").write_bytes(b"of another tokenizer")
    with torch.no_grad():
        next(model.parameters())[0, 0] += 1

    def finish() -> None:
        (folder / "checkpoints").mkdir(exist_ok=True)
        write_finished(folder, model, tokenizer, {"steps": 1})

    def read(folder: Path) -> Any:
        tree = tree_of(folder)
        return None if tree is None else {name: digest for name, digest in tree.items() if name != "checkpoints"}

    assert check_old_or_new(finish, folder, read=read)


# -- saved models: what is like another one is killed at some writes of each kind


def encoder(model: Path, recipe: str) -> Encoder:
    return Encoder(str(model), recipe, device="cpu").fit(CORPUS)


def test_a_new_encoder(bert: Path, tmp_path: Path) -> None:
    model = encoder(bert, "ditto:2-3 weights=idf")
    assert check_old_or_new(lambda: model.save(str(tmp_path / "model")), tmp_path / "model") > 60


@pytest.mark.parametrize(("first", "second"), [("ditto:2-3", "mean | zscore"), ("static", "ditto:2-3")])
def test_over_another_encoder(bert: Path, tmp_path: Path, first: str, second: str) -> None:
    folder = tmp_path / "model"
    encoder(bert, first).save(str(folder))
    (folder / "notes.txt").write_text("mine")
    replacement = encoder(bert, second)
    check_old_or_new(lambda: replacement.save(str(folder)), folder, most=60)


def test_a_graph_over_another(bert: Path, tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    essent.compile(encoder(bert, "cls"), "onnx").save(str(folder))
    replacement = essent.compile(encoder(bert, "mean"), "onnx")
    check_old_or_new(lambda: replacement.save(folder), folder, most=60)


def test_where_folders_cannot_be_exchanged(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a death between two renames leaves the old folder aside, and whoever reads or writes next puts it back."""
    monkeypatch.setattr("essent._core.atomic._exchange", lambda *_: False)
    folder = tmp_path / "model"
    old, new = encoder(bert, "cls"), encoder(bert, "mean")
    old.save(str(folder))
    allowed_vectors = {encoded.tobytes() for encoded in (old.encode(CORPUS[:3]), new.encode(CORPUS[:3]))}
    points = 0
    for state in killed_at_every_write(lambda: new.save(str(folder)), folder, most=60):
        points += 1
        assert Encoder(str(folder)).encode(CORPUS[:3]).tobytes() in allowed_vectors, state
        assert essent.verify(str(folder)).passed
    assert points > 40


# -- what goes on where it stopped ------------------------------------------------------------------------------------


def test_the_work_folder_of_a_search(tmp_path: Path, shell_of: Callable[[str], SentenceTransformer]) -> None:
    """The killed search goes on and ends with the scores of one that was not, bit for bit."""
    from essent.selection.run import search
    from essent.selection.space import Grid, Space

    space = Space((Grid(layers=("1", "L"), weights=("uniform", "idf"), shaping=("", "centre", "whiten:4")),))
    work, shell = tmp_path / "work", shell_of("bert")

    def run() -> dict[str, Any]:
        board = search(shell, TASK, space, work=work, memory=2e-4, progress=False).to_dict()
        assert not [path for path in work.iterdir() if "pooled" in path.name or path.name.startswith(".")]
        return {**board, "provenance": None}

    expected = {**search(shell, TASK, space, memory=2e-4, progress=False).to_dict(), "provenance": None}
    assert check_resumes(run, work, most=24) == expected


def test_the_state_of_averaging(
    tmp_path: Path, shell_of: Callable[[str], SentenceTransformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    from essent.static import sums
    from essent.static.gather import average_contexts

    backbone = load(shell_of("bert"), [Recipe()], {}).backbone
    path = tmp_path / "state.safetensors"
    monkeypatch.setattr(sums, "PORTION", 4)

    def run() -> dict[str, Any]:
        averages = average_contexts(backbone, CORPUS, layers=[1], state=path, every=0.0).contexts
        return {"table": averages.table(1).tobytes(), "count": averages.count.tolist()}

    resumed = check_resumes(run, path, most=30)
    path.unlink(missing_ok=True)
    assert run() == resumed


def test_a_whole_checkpoint_at_every_write(tmp_path: Path, folder_of: Callable[[str], Path]) -> None:
    """The one before goes when the new one is whole: at every moment one is, and what looks whole is whole."""
    from essent.training.checkpoints import check_checkpoint, is_whole, last_checkpoint
    from essent.training.examples import as_examples
    from essent.training.loss import make_collator, make_loss
    from essent.training.run import open_encoder
    from essent.training.settings import resolve_settings
    from essent.training.trainer import make_trainer

    folder = tmp_path / "run" / "checkpoints"
    encoder = open_encoder(str(folder_of("bert")), "cpu")
    settings = resolve_settings("promptbert-unsup", "bert", {"batch_size": 4, "max_steps": 3, "validate_every": 1})
    examples = as_examples(CORPUS[:12])
    loss = make_loss(encoder, settings)
    trainer = make_trainer(encoder, loss, examples, settings, folder, make_collator(encoder, loss))
    trainer.args.save_total_limit = 1
    trainer.create_optimizer_and_scheduler(3)
    for name in ("checkpoint-2", "checkpoint-3"):  # of a run that was killed before
        (folder / name).mkdir(parents=True)
        (folder / name / "trainer_state.json").write_text("{}", "utf-8")

    def save(step: int) -> None:
        trainer.state.global_step = step
        trainer._save_checkpoint(encoder, None)

    save(1)
    last_names = set()
    for state in killed_at_every_write(lambda: save(2), folder):
        whole = [path for path in folder.iterdir() if is_whole(path)]
        assert whole, f"Killed at {state}: there is no checkpoint."
        for path in whole:
            check_checkpoint(path)
        last_names.add(last_checkpoint(folder).name)
        state.run(lambda: save(2))
        assert [path.name for path in folder.iterdir()] == ["checkpoint-2"], str(state)
        check_checkpoint(folder / "checkpoint-2")
        assert not [path.name for path in folder.rglob(".*")], str(state)
    assert last_names == {"checkpoint-1", "checkpoint-2"}


def test_checkpoints_of_training(tmp_path: Path, folder_of: Callable[[str], Path]) -> None:
    """A checkpoint that looks whole is; the resumed run ends with the bytes of one that was not killed."""
    from essent.training.checkpoints import check_checkpoint, last_checkpoint
    from essent.training.run import train

    folder, model = tmp_path / "run", folder_of("bert")

    def run() -> tuple[bytes, list[Any]]:
        checkpoint = last_checkpoint(folder / "checkpoints")
        if checkpoint is not None:
            check_checkpoint(checkpoint)
        settings = {"batch_size": 4, "learning_rate": 1e-3, "device": "cpu", "max_steps": 3, "validate_every": 1}
        train(model, CORPUS[:12], output=folder, validate=TASK, resume=True, **settings)
        metadata = json.loads((folder / "training.json").read_text("utf-8"))
        scores = [(row["step"], row["eval_spearman"]) for row in metadata["history"] if "eval_spearman" in row]
        return (folder / "model.safetensors").read_bytes(), [metadata["steps"], metadata["best_step"], scores]

    expected, points, resumed = None, 0, set()
    for state in killed_at_every_write(run, folder, most=16):
        points += 1
        checkpoint = last_checkpoint(folder / "checkpoints")
        resumed.add(None if checkpoint is None else checkpoint.name)
        weights_and_scores = state.run(run)
        expected = expected or weights_and_scores
        assert weights_and_scores == expected, f"Killed at {state}: the resumed run ends elsewhere."
        assert not [path.name for path in folder.rglob(".*")], f"After a death at {state}."
    assert points
    assert len(resumed) >= 3, resumed


def test_parts_of_a_bulk_run(static_folder: Path, tmp_path: Path) -> None:
    """Killed at any write, a run goes on to the bytes of one that was not killed."""
    from essent.bulk.run import encode

    texts, output = tmp_path / "texts.csv", tmp_path / "vectors"
    texts.write_text("\n".join(["text", *(f'"{text}"' for text in CORPUS[:12])]), "utf-8")

    def run() -> dict[str, bytes]:
        encode(texts, static_folder, output, rows_per_part=4)
        return {path.name: path.read_bytes() for path in sorted(output.iterdir())}

    assert len(check_resumes(run, output, most=24)) > 1
