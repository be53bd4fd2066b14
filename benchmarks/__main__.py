"""Every benchmark, each in a separate process, one after the other: `make bench`.

Each can be run alone, `python -m benchmarks.<name>`, and takes minutes; what would take longer is cut short here.
One that fails does not stop the others; it is named at the end.
"""

import subprocess
import sys
import time
from pathlib import Path

from ec1.models import precision_on

# As much as minutes allow; each says with --help how to measure more.
SHORT = {
    "apply_entities": ["--sizes", "10000,30000"],
    "beside_splink": ["--sets", "febrl1"],
    "convert_documents": ["--files", "2000", "--turns", "1"],
    "extract_documents": ["--modes", "both", "--documents", "6"],
    "extraction_quality": ["--modes", "decide", "--only", "2"],
    "format_quality": ["--only", "4"],
    "gate_rates": ["--seeds", "1"],
    "injected_sentences": ["--only", "1", "--sets", "unseen"],
    "large_night": ["--trainings", "200"],
    "languages": ["--modes", "both", "--only", "japanese"],
    "night_cost": ["--sizes", "10000,30000", "--nights", "1"],
    "own_classes": ["--only", "4", "--modes", "decide"],
    "precision": ["--rounds", "1", "--tokens", "36"],
    "prefix_sharing": ["--rounds", "2"],
    "prepare_dataset": ["--sizes", "1000", "10000"],
    "relations": ["--only", "4"],
    "resolve_entities": ["--sizes", "10000,30000"],
    "scan_documents": ["--files", "20000"],
    "search_names": ["--size", "30000", "--mentions", "100000"],
    "serving": ["--rounds", "30", "--clients", "20", "--turns", "5"],
    "studio_pages": ["--rows", "100000"],
    "threshold_check": ["--tuples", "200000"],
    "train_tokens": ["--rows", "16"],
    "trained_extractor": ["--modes", "both", "--sets", "organisations"],
    "training_step": ["--rows", "2", "--rounds", "2"],
    "weights_in_32_bits": ["--steps", "5"],
}

# `make mutants` and `make bench-growth` run the first two; the third tells of a night that has run (`--home`); the next
# three need repositories and texts, then two a home of `make learn`, the others two cores and nothing beside them.
LEFT_OUT = {
    *("mutants", "growth", "critical_path", "commit_tuples", "histories", "ordinary_languages"),
    *("expressions", "reward_model", "planned_training", "several_engines", "ray_engines"),
}

# They train as a bare script does, in bfloat16, which takes a processor without AMX ten times as long.
IN_16_BITS = {"train_tokens", "training_step"}

failed = []
for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    # The others hold what benchmarks share.
    if path.stem in LEFT_OUT or '__name__ == "__main__"' not in path.read_text():
        continue
    if path.stem in IN_16_BITS and precision_on("cpu", 0) == "float32":
        sys.stdout.write(f"\npython -m benchmarks.{path.stem}: left out, this processor is slow in bfloat16\n")
        continue
    command = [f"benchmarks.{path.stem}", *SHORT.get(path.stem, [])]
    sys.stdout.write(f"\npython -m {' '.join(command)}\n")
    sys.stdout.flush()
    began = time.monotonic()
    if subprocess.run([sys.executable, "-m", *command]).returncode:
        failed.append(path.stem)
    sys.stdout.write(f"({path.stem}: {time.monotonic() - began:.0f} s)\n")
if failed:
    sys.exit(f"\nfailed: {', '.join(failed)}")
