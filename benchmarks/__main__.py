"""Every benchmark, each in a separate process, one after the other: `make bench`.

Each can be run alone, `python -m benchmarks.<name>`, and takes minutes; two that would take longer are cut short here.
"""

import subprocess
import sys
from pathlib import Path

# As much as minutes allow; each says with --help how to measure more.
SHORT = {
    "extraction_quality": ["--modes", "decide", "--only", "2"],
    "gate_rates": ["--seeds", "1"],
    "injected_sentences": ["--only", "2"],
    "trained_extractor": ["--modes", "both"],
}

# `make mutants` measures the tests; the next one needs two repositories, the last one two cores and nothing beside it.
LEFT_OUT = {"mutants", "commit_tuples", "several_engines"}

for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    if path.stem in LEFT_OUT:
        continue
    sys.stdout.write(f"\n{path.stem}\n")
    sys.stdout.flush()
    subprocess.run([sys.executable, "-m", f"benchmarks.{path.stem}", *SHORT.get(path.stem, [])], check=True)
