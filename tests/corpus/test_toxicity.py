"""The toxicity filter, with a real classifier of `transformers` that was taught one word."""

import json
from pathlib import Path
from typing import Any

import pytest
from corpus_builder import NIGHT, edit, write_lines

from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import build_dataset
from ec1.corpus.options import DataOptions
from ec1.corpus.snapshots import take_snapshot
from ec1.corpus.toxicity import ToxicityClassifier, ToxicityOptions
from ec1.errors import InputError, PermanentError
from ec1.home import Home

VILE = "scum"
OPTIONS = ToxicityOptions(model="some/classifier")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier whose score for `toxic` is high if the vile word is among the 64 tokens that it reads.

    Its weights are written, not learnt, so that it scores the same on every processor: of the four dimensions, words
    use the first two and the vile word the last two; attention is the mean of all tokens' last two, made large.
    """
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("classifier")
    words = Tokenizer(WordLevel({"[UNK]": 0, "[PAD]": 1, VILE: 2}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]", model_max_length=64
    ).save_pretrained(folder)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=3,
            hidden_size=4,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=4,
            max_position_embeddings=64,
            id2label={0: "clean", 1: "toxic"},
            label2id={"clean": 0, "toxic": 1},
        )
    )
    bert = model.bert
    layer = bert.encoder.layer[0]
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "LayerNorm" not in name:
                weights.zero_()
        bert.embeddings.word_embeddings.weight.copy_(
            torch.tensor([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])
        )
        layer.attention.self.value.weight.copy_(torch.diag(torch.tensor([0.0, 0.0, 1.0, 1.0])))
        layer.attention.output.dense.weight.copy_(1000 * torch.eye(4))
        bert.pooler.dense.weight.copy_(torch.eye(4))
        model.classifier.weight[1, 2] = 20.0
        model.classifier.bias[1] = -8.0
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def classifier(folder: Path) -> ToxicityClassifier:
    return ToxicityClassifier(folder, OPTIONS)


def test_every_part_of_a_text_is_read(classifier: ToxicityClassifier) -> None:
    far = "all is well and " * 200
    scores = classifier.scores(["all is well", f"you {VILE} of the earth", far, far + VILE, f"{far}{VILE} {far}", ""])
    assert [score > 0.5 for score in scores] == [False, True, False, True, True, False]
    assert scores[-1] == 0.0


def test_a_label_that_it_lacks_and_a_folder_that_is_none_are_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data\.toxicity\.label: 'rude' is none of the classifier's: clean, toxic"):
        ToxicityClassifier(folder, ToxicityOptions(model="some/classifier", label="rude"))
    with pytest.raises(InputError, match=r"data\.toxicity\.model: .* is not a text classifier"):
        ToxicityClassifier(tmp_path, OPTIONS)


def test_rows_with_a_toxic_answer_are_dropped_and_counted(
    classifier: ToxicityClassifier, tmp_path: Path, home: Home, small_model: Path
) -> None:
    from transformers import AutoTokenizer

    records = [edit(number) for number in range(30)]
    records[3]["diff"] += f"+    raise {VILE}\n"
    # What was asked may be as bad as it was.
    records[4]["commit_msg"] += f": remove {VILE}"
    write_lines(tmp_path / "engineering/demo/all.jsonl", records)
    snapshot = take_snapshot(bucket(tmp_path, "engineering", "acme"), "sft", as_of=NIGHT, home=home)
    tokenizer: Any = AutoTokenizer.from_pretrained(small_model)
    data = DataOptions(toxicity=OPTIONS)
    with pytest.raises(PermanentError, match="no classifier"):
        build_dataset(snapshot, data, tokenizer, home=home, objective="sft")
    dataset = build_dataset(snapshot, data, tokenizer, home=home, objective="sft", classifier=lambda _: classifier)
    assert dataset.train_rows + dataset.heldout_rows == 29 and dataset.rejected == {"toxic": 1}
    reject = json.loads((dataset.path / "rejects.jsonl").read_text())
    assert reject["reason"] == "toxic" and reject["origin"].endswith("all.jsonl:4")
    plain = build_dataset(snapshot, DataOptions(), tokenizer, home=home, objective="sft")
    assert plain.train_rows + plain.heldout_rows == 30 and plain.digest != dataset.digest
