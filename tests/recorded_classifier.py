"""What the released processors and features gave, for the tests of both.

testdata/classifier_features was recorded from the release, see there.
"""

import gzip
import json
from pathlib import Path

import glue

TESTDATA = Path(__file__).parent / "testdata" / "classifier_features"
PROCESSORS = {
    "cola": glue.ColaProcessor,
    "mnli": glue.MnliProcessor,
    "mrpc": glue.MrpcProcessor,
    "xnli": glue.XnliProcessor,
}
with gzip.open(TESTDATA / "features.json.gz", "rt", encoding="utf-8") as reader:
    RECORDED = {(t["task"], t["split"]): t for t in json.load(reader)}
RECORDED_SETS = [key for key, t in RECORDED.items() if "error" not in t]


def recorded_examples(task, split):
    processor = PROCESSORS[task]()
    read = getattr(processor, f"get_{split}_examples")
    return read(str(TESTDATA / "data" / task))
