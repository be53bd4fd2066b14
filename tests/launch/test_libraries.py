"""A process loads what it uses, and not what else is installed."""

import importlib.metadata
import subprocess
import sys

import pytest

from ec1.launch.libraries import hidden, load_libraries

ASKED = """
import sys
from ec1.launch.libraries import hidden, load_libraries
with hidden({names}):
    load_libraries("peft")
    from peft.import_utils import is_bnb_available
    print(is_bnb_available(), "bitsandbytes" in {{name for name, module in sys.modules.items() if module}})
    assert "sklearn" not in sys.modules
    import sklearn.isotonic  # calibrations are fitted with it
import bitsandbytes
"""


@pytest.mark.parametrize(("names", "there"), [({"bitsandbytes"}, False), (set(), True)])
def test_what_is_hidden_is_not_there_and_can_be_loaded_afterwards(names: set[str], there: bool) -> None:
    program = ASKED.format(names=names)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(there), str(there)]


def test_nothing_is_left_of_it_where_a_library_is_missing() -> None:
    read, loaded = importlib.metadata.packages_distributions, set(sys.modules)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"), hidden({"nor_this_one", "json"}):
        import json  # it was loaded before

        assert json.loads("1") == 1
        load_libraries("no_such_library")
    assert importlib.metadata.packages_distributions is read
    assert set(sys.modules) == loaded
