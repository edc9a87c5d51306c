"""`essent search`: the table, every output, resuming, and pairs to annotate."""

import json
from pathlib import Path

from command_line import error, read_json, run, write_pairs
from essent import Encoder
from essent.selection.annotation import read_pairs
from essent.selection.annotation import write_pairs as write_annotated
from essent.selection.run import search
from essent.tasks.locate import load_pairs
from near_ties import one_by_one


def test_every_output_at_once() -> None:
    scored, test = (write_pairs(Path(f"{name}.jsonl"), seed) for seed, name in enumerate(("scored", "test")))
    command = f"search -m tiny -d {scored} -s heads --top 3 --work work"
    first = run(f"{command} --test {test} -o best")
    again = run(f"{command} --report page.html --json board.json")
    recipe = str(Encoder("best").recipe)
    assert "test, spearman of 80 pairs that the recipes were not chosen on" in " ".join(first.stdout.split())
    assert f"Saved {recipe} to best" in first.stderr
    assert recipe in Path("page.html").read_text("utf-8")
    for note in ("optimistic", "1 forward pass over"):
        assert note in first.stderr
    assert again.stdout.splitlines()[:6] == first.stdout.splitlines()[:6]
    values = read_json(Path("board.json"))
    assert values["provenance"]["encoded"] == 0
    leader, score = values["trials"][0]["recipe"], values["trials"][0]["scores"]["spearman"]
    for text in (leader, "95 % interval", f"{score:.2f}"):
        assert text in first.stdout
    assert score == one_by_one("tiny", [leader], load_pairs(scored))[leader].expected(leader)


def test_several_files_are_ranked_together_and_tested_on_several() -> None:
    for seed, name in enumerate(("more", "first", "second")):
        write_pairs(Path(f"{name}.jsonl"), seed)
    command = "search -m tiny --data my-pairs.jsonl more.jsonl --space layers --test first.jsonl --test second.jsonl"
    values = json.loads(run(f"{command} --json -").stdout)
    board = search("tiny", [load_pairs("my-pairs.jsonl"), load_pairs("more.jsonl")], "layers")
    assert [row["recipe"] for row in values["trials"]] == [str(trial.recipe) for trial in board.trials]
    assert set(values["trials"][0]["scores"]) == {"mean rank", "my-pairs", "more"}
    assert [check["task"] for check in values["checks"]] == ["first", "second"]


def test_pairs_to_annotate_are_written_filled_in_and_used() -> None:
    file, board = Path("judge.csv"), Path("board.json")
    command = f"search -m tiny --texts many.txt -s weights --ask 12 --ask-file {file} --work work --json {board}"
    first = run(command)
    assert "Wrote 12 pairs to" in first.stderr
    assert "run the same command again" in first.stderr
    assert (first.stdout, board.exists()) == ("", False)
    pairs, before = read_pairs(file), file.read_bytes()
    assert [score for _, _, score in pairs] == [None] * 12
    assert "none of the 12 pairs has a score" in error(command)
    assert file.read_bytes() == before
    write_annotated(file, [(a, b, float(n % 6) if n != 4 else None) for n, (a, b, _) in enumerate(pairs)])
    second, values = run(command), read_json(board)
    assert (values["criterion"], values["provenance"]["units"]) == ("judged + teacher", 11)
    assert values["trials"][0]["recipe"] in second.stdout
    assert "1 of 12 pairs have no score and are excluded" in second.stderr
    assert [pair[:2] for pair in read_pairs(file)] == [pair[:2] for pair in pairs]
    write_annotated(file, [(a, b, float(n % 6)) for n, (a, b, _) in enumerate(pairs[:0:-1])])  # 11 others
    run(f"{command} --force")  # in the same folder of intermediate results
    assert read_json(board)["trials"] != values["trials"]
    groups = run("search -m tiny --texts many.txt -s weights --for clusters --ask 5 --ask-file groups.csv")
    assert "1 (they belong to the same group) or 0 (they do not)" in groups.stderr
