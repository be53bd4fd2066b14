"""Continued pre-training with all weights held in 32 bits, as ours, and in 16, on the sample's own documents.

Both compute in 32 bits with an optimiser in 32 bits, so that what differs is the weights alone: in 16 bits each is
rounded after each update, as it is where a model is loaded in bfloat16 and trained. Every seventh document is held out.
"""

import argparse
import copy
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._engine import embedded, model_of
from benchmarks.sample import read

LENGTH = 128


def main(steps: int, rows: int, rate: float) -> None:
    """Print for each the held-out loss, nats a token, before and after, and the share of weights that moved."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with tempfile.TemporaryDirectory() as name:
        folder = model_of(embedded()[0], Path(name))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        base = copy.deepcopy(model.state_dict())

        def pieces(texts: list[str]) -> Any:
            ids = [token for text in texts for token in [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]]
            return torch.tensor(ids[: len(ids) // LENGTH * LENGTH]).reshape(-1, LENGTH)

        texts = [each.text for each in read()]
        trained, heldout = pieces([each for n, each in enumerate(texts) if n % 7]), pieces(texts[::7])

    def loss() -> float:
        with torch.no_grad():
            return sum(float(model(each[None], labels=each[None]).loss) for each in heldout) / len(heldout)

    print(f"{steps} steps of {rows} rows of {LENGTH} tokens at {rate:g}; {len(heldout)} rows held out")
    for bits in (32, 16):
        model.load_state_dict(base)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        before, order = loss(), torch.Generator().manual_seed(17)
        for _ in range(steps):
            batch = trained[torch.randint(len(trained), (rows,), generator=order)]
            model(batch, labels=batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if bits == 16:
                with torch.no_grad():
                    for weight in model.parameters():
                        weight.copy_(weight.bfloat16())
        layers = {name: weight for name, weight in model.named_parameters() if "_proj" in name}
        moved = sum(int((weight != base[name]).sum()) for name, weight in layers.items())
        share = moved / sum(weight.numel() for weight in layers.values())
        print(f"in {bits} bits: {before:.3f} -> {loss():.3f}, {share:.1%} of the layers' weights moved", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weights_in_32_bits", description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-5)
    given = parser.parse_args()
    main(given.steps, given.rows, given.rate)
