"""An answer that is read as far as it is the wanted one, and written from there, is the one that is written whole."""

import functools
from pathlib import Path
from typing import Any

import pytest

from ec1.adapters.likelihood import HeldOutExample, ReadAnswer, read_answers
from ec1.adapters.scores import THINKING
from ec1.adapters.written import answers_to, samples_of
from ec1.answers import answering
from ec1.answers.answering import ends_of, load_candidates, write_answers
from ec1.recipes.evaluation import EvaluationOptions

TOKENS = 10
OPTIONS = EvaluationOptions()
PROMPTS = ([11, 12, 13, 14], [21, 22], [31, 32, 33], [41, 42, 43])


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    # In 32 bits: in 16, of two tokens that are equally likely each batch may choose another one.
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.mul_(10)  # else it repeats what it was asked
    return model


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_model)


def after_a_round(place: int, text: str) -> bool:
    return place == 2


@pytest.mark.slow
def test_what_is_read_of_an_answer_is_what_would_be_written(
    model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def written(prompt: list[int]) -> list[int]:
        found: list[int] = []
        for _ in range(TOKENS):
            logits = model(input_ids=torch.tensor([prompt + found])).logits
            found.append(int(logits[0, -1].argmax()))
        return found

    with torch.inference_mode():
        own = [written(prompt) for prompt in PROMPTS]
        end = next(token for token in own[0][4:] if token not in own[0][:4] and all(token not in o for o in own[1:]))
        monkeypatch.setattr(model.generation_config, "eos_token_id", [end])
        stop = own[0].index(end)
        wanted = [
            [*own[0][: stop + 1], 198],  # ends, and the template puts a line break behind it
            [*own[1][:6], 77, end],  # the model leaves it after six tokens
            [78, *own[2], end],  # at once
            own[3][:6],  # was cut off: has no end
        ]
        examples = [
            HeldOutExample(str(place), str(place), prompt, (answer,), "", tokenizer.decode(answer))
            for place, (prompt, answer) in enumerate(zip(PROMPTS, wanted, strict=True))
        ]
        read = [each[0] for each in read_answers(model, examples, batch_tokens=64, pad=0, ends={end}, device="cpu")]
        assert [each.same for each in read] == [stop, 6, 0, 6]
        assert [each.whole for each in read] == [True, False, False, False]
        assert end in ends_of(model, tokenizer)

        asked: list[int] = []
        generate = model.generate

        def counted(**options: Any) -> Any:
            asked.append(len(options["input_ids"]))
            return generate(**options)

        monkeypatch.setattr(model, "generate", counted)
        whole = write_answers(model, tokenizer, list(PROMPTS), device="cpu", max_tokens=TOKENS)
        assert asked == [4]
        few = write_answers(model, tokenizer, list(PROMPTS), device="cpu", max_tokens=TOKENS, hopeless=after_a_round)
        assert few == whole, "no round has ended"
        del asked[:]
        with monkeypatch.context() as short:
            short.setattr(answering, "_ROUND", 3)
            few = write_answers(
                model, tokenizer, list(PROMPTS), device="cpu", max_tokens=TOKENS, hopeless=after_a_round
            )
        assert asked == [4, 3, 2], "what is given up or has ended is written no more"
        assert few[:2] + few[3:] == whole[:2] + whole[3:], "rounds change nothing"
        assert few[2].text.endswith(" \u2026") and whole[2].text.startswith(few[2].text[:-2]) and not few[2].cut
        del asked[:]
        assert answers_to(model, tokenizer, examples, read, device="cpu", max_tokens=TOKENS, options=OPTIONS) == whole
        assert asked == [3], "the answer that is read whole is not written"
        assert [each.cut for each in whole] == [False, True, True, True]


@pytest.mark.slow
def test_a_thought_takes_what_the_recipe_gives_and_one_that_is_cut_is_told(model: Any, tokenizer: Any) -> None:
    """The template opened it, or the model did, and no wanted answer says how long it is."""
    import torch

    opened = tokenizer("<think>\n")["input_ids"]
    prompts = [[*PROMPTS[0], *opened], [*PROMPTS[1], *opened, *tokenizer("</think>\n")["input_ids"]], PROMPTS[2]]
    examples = [
        HeldOutExample(str(n), str(n), prompt, ([77, 78, 79],), "", "words " * 99) for n, prompt in enumerate(prompts)
    ]
    nothing = [ReadAnswer(0.0, 0, False)] * 3
    options = OPTIONS.model_copy(update={"sample_tokens": 30})
    with torch.inference_mode():
        answers = answers_to(model, tokenizer, examples, nothing, device="cpu", max_tokens=TOKENS, options=options)
        short = write_answers(model, tokenizer, prompts, device="cpu", max_tokens=TOKENS)
        (long,) = write_answers(model, tokenizer, prompts[:1], device="cpu", max_tokens=30)
    assert [answer.text for answer in answers] == [long.text, short[1].text, short[2].text]
    assert [answer.thinking for answer in answers] == [True, False, False]
    (told, *_) = samples_of(examples, {"base": answers}, options)
    assert told.faults == {"base": (THINKING,)}


@pytest.mark.slow
def test_the_head_gets_whole_rows(tiny_model: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Of a slice, torch multiplies each row on its own with a frozen weight: an evaluation took minutes more."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.bfloat16)
    adapter = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    adapter.save_pretrained(tmp_path / "adapter")
    loaded, switch = load_candidates(tiny_model, {"base": None, "candidate": tmp_path / "adapter"}, "cpu")
    seen: list[bool] = []
    loaded.get_output_embeddings().register_forward_hook(lambda _, given, out: seen.append(given[0].is_contiguous()))
    examples = [HeldOutExample(str(n), str(n), prompt, ([7, 8, 9],), "", "") for n, prompt in enumerate(PROMPTS)]
    with torch.inference_mode(), switch("candidate"):
        read_answers(loaded, examples, batch_tokens=64, pad=0, ends={2}, device="cpu")
        write_answers(loaded, tokenizer, list(PROMPTS), device="cpu", max_tokens=2)
    assert len(seen) > 1 and all(seen)


@pytest.mark.slow
def test_short_rows_share_a_batch_with_more_of_their_kind(tiny_model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    shapes: list[tuple[int, ...]] = []
    model.get_input_embeddings().register_forward_hook(lambda _, given, out: shapes.append(tuple(given[0].shape)))
    lengths = (3, 40, 9, 4, 30, 5, 10, 3)
    examples = [HeldOutExample(str(n), str(n), [20 + k] * (n - 2), ([7, 8],), "", "") for k, n in enumerate(lengths)]
    read = functools.partial(read_answers, model, examples, pad=0, ends={2}, device="cpu")
    with torch.inference_mode():
        together, alone = read(batch_tokens=32), read(batch_tokens=1)
    assert shapes == [(1, 40), (1, 30), (3, 10), (3, 4), *((1, n) for n in sorted(lengths, reverse=True))]
    for (one,), (other,) in zip(together, alone, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("keeps_to_the_mask", [True, False])
def test_a_prompt_is_read_once_for_all_its_answers(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, keeps_to_the_mask: bool
) -> None:
    """By a model that looks at what the mask allows; another one reads each answer alone."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    with torch.no_grad():
        # Of random weights nearly all answers are equally likely, whatever stands before them.
        for weight in model.parameters():
            weight.mul_(3.0)
    shapes: list[tuple[int, ...]] = []
    model.get_input_embeddings().register_forward_hook(lambda _, given, out: shapes.append(tuple(given[0].shape)))
    if not keeps_to_the_mask:
        theirs = model.forward

        def forward(attention_mask: Any, position_ids: Any = None, **rest: Any) -> Any:
            plain = attention_mask if attention_mask.dim() == 2 else None
            return theirs(attention_mask=plain, **rest)

        monkeypatch.setattr(model, "forward", forward)
    answers = ([7, 8, 9, 2], [70, 71, 2], [9, 9, 7, 8, 2])
    one = HeldOutExample("one", "one", [5, 6, 7, 5], answers[:2], "", "")
    behind = HeldOutExample("one again", "one", [5, 6, 7, 5], answers[2:], "", "")
    other = HeldOutExample("other", "other", [30, 31], answers, "", "")
    read = functools.partial(read_answers, model, [one, behind, other], pad=0, ends={2}, device="cpu")
    with torch.inference_mode():
        together, alone = read(batch_tokens=32), read(batch_tokens=1)
    if keeps_to_the_mask:
        assert shapes[:-6] == [(2, 16), (2, 9)], "two are looked at alone"
    else:
        assert shapes[2:-6] == [(3, 9), (3, 7)], "each by itself"
    for ours, theirs_alone in zip(together, alone, strict=True):
        for mine, single in zip(ours, theirs_alone, strict=True):
            assert mine.loss == pytest.approx(single.loss, rel=1e-4)
            assert (mine.same, mine.whole) == (single.same, single.whole)
