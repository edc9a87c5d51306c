"""The data sets of labelled texts: SentEval's transfer tasks and those that Stankevičius (2024, Tables 2, 3) adds.

None of these hub revisions could be confirmed, so none is pinned; results say so.
"""

from __future__ import annotations

from essent.tasks.catalogue import Clusters, Labels, add
from essent.tasks.senteval_labels import ClassFiles, PartFiles

TRANSFER7 = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")  # what PromptBERT's appendix C averages
CLASSIFICATION12 = (*TRANSFER7, "sst5", "scicite", "sicke", "sickr-soft", "stsb-soft")  # Stankevičius
CLUSTERING6 = ("agnews", "biomedical", "googlets", "searchsnippets", "stackoverflow", "tweet")
PARTS = ("train", "dev", "test")

# -- classification: no parts, so cross-validation --------------------------------------------------------------------

add(Labels("mr", senteval=ClassFiles("MR", {"1": "rt-polarity.pos", "0": "rt-polarity.neg"})))
add(
    Labels(
        "cr",
        hub="SetFit/SentEval-CR",
        hub_splits={"train": "train", "test": "test"},
        senteval=ClassFiles("CR", {"1": "custrev.pos", "0": "custrev.neg"}),
    )
)
add(
    Labels(
        "subj",
        hub="SetFit/subj",
        hub_splits={"train": "train", "test": "test"},
        senteval=ClassFiles("SUBJ", {"1": "subj.objective", "0": "subj.subjective"}),
    )
)
add(Labels("mpqa", senteval=ClassFiles("MPQA", {"1": "mpqa.pos", "0": "mpqa.neg"})))

# -- classification: with parts ---------------------------------------------------------------------------------------

add(
    Labels(
        "sst2",
        PARTS,
        note="Trained on 6,920 whole sentences, as in SentEval; Stankevičius trains on 67,349 phrases.",
        hub="SetFit/sst2",
        senteval=PartFiles(
            {part: f"SST/binary/sentiment-{part}" for part in PARTS},
            {"text": 0, "label": 1},
        ),
    )
)
add(
    Labels(
        "trec",
        ("train", "test"),
        hub="SetFit/TREC-QC",
        hub_splits={"train": "train", "test": "test"},
        senteval=PartFiles({"train": "TREC/train_5500.label", "test": "TREC/TREC_10.label"}, {}, colon=True),
    )
)
add(
    Labels(
        "mrpc",
        ("train", "test"),
        hub="SetFit/mrpc",
        hub_splits={"train": "train", "dev": "validation", "test": "test"},
        senteval=PartFiles(
            {"train": "MRPC/msr_paraphrase_train.txt", "test": "MRPC/msr_paraphrase_test.txt"},
            {"label": 0, "sentence1": 3, "sentence2": 4},
            header=1,
        ),
    )
)
add(
    Labels(
        "sst5",
        PARTS,
        hub="SetFit/sst5",
        senteval=PartFiles({part: f"SST/fine/sentiment-{part}" for part in PARTS}, {"text": 0, "label": 1}),
    )
)
add(Labels("scicite", PARTS))

SICK = {"train": "SICK/SICK_train.txt", "dev": "SICK/SICK_trial.txt", "test": "SICK/SICK_test_annotated.txt"}
STSB = {part: f"STS/STSBenchmark/sts-{part}.csv" for part in PARTS}
add(Labels("sicke", PARTS, senteval=PartFiles(SICK, {"sentence1": 1, "sentence2": 2, "label": 4}, header=1)))
add(
    Labels(
        "sickr-soft",
        PARTS,
        scale=(1, 5),
        stem="sickr",
        senteval=PartFiles(SICK, {"sentence1": 1, "sentence2": 2, "score": 3}, header=1),
    )
)
add(
    Labels(
        "stsb-soft",
        PARTS,
        scale=(1, 5),
        stem="stsb",
        hub="mteb/stsbenchmark-sts",
        revision="b0fddb56ed78048fa8b90373c8a3cfc37b684831",
        senteval=PartFiles(STSB, {"score": 4, "sentence1": 5, "sentence2": 6}),
    )
)

# -- clustering (Stankevičius, Table 2) -------------------------------------------------------------------------------

add(Clusters("agnews", classes=4, size=8000))
add(Clusters("biomedical", classes=20, size=20000))
add(Clusters("googlets", classes=152, size=11109))
add(Clusters("searchsnippets", classes=8, size=12340))
add(Clusters("stackoverflow", classes=20, size=20000))
add(Clusters("tweet", classes=89, size=2472))
