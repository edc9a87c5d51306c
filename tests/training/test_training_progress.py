"""What a training run shows while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_helpers import SMALL, TEXTS
from transformers import TrainerControl, TrainerState

from essent import train
from essent.training.progress import StepLines


def test_lines_name_step_loss_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    """Two seconds per step: lines after 6 and 36 seconds, none at the last step."""
    seconds = 0.0
    lines = StepLines(last_loss=lambda: 0.25, clock=lambda: seconds)
    state = TrainerState(max_steps=120, global_step=100)  # a resumed run
    lines.on_train_begin(None, state, TrainerControl())
    for step in range(101, 121):
        seconds, state.global_step = 2.0 * (step - 100), step
        lines.on_step_end(None, state, TrainerControl())
    assert capsys.readouterr().err.splitlines() == [
        "Step 103 of 120: loss 0.250, about 34 s left",
        "Step 118 of 120: loss 0.250, about 4 s left",
    ]


@pytest.mark.parametrize("terminal", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_bar_with_the_loss_on_a_terminal_only(
    terminal: bool, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither a line of dictionaries nor a bar of another library comes with it."""
    monkeypatch.setattr("essent.training.trainer.can_show_bar", lambda: terminal)
    train(bert, TEXTS, "simcse-unsup", output=tmp_path / "run", max_steps=3, validate_every=1, progress=True, **SMALL)
    captured = capfd.readouterr()
    assert ("3/3" in captured.err and "loss=" in captured.err) == terminal
    shown = captured.err + captured.out
    assert not any(part in shown for part in ("{", "widget", "Writing")), shown
