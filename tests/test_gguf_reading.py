"""A GGUF file is read once while it is converted, and what is read is the same."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from ec1.gguf_reading import read_once


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A GGUF file with a scalar, an array of strings and a quantised tensor."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(2)
    writer.add_token_list(["<s>", "Ärger", "ort"])
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    blocks = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_1)
    writer.add_tensor("token_embd.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_file_is_read_once_while_it_is_converted_and_anew_afterwards(file: Path) -> None:
    with read_once():
        assert gguf.GGUFReader(str(file)) is gguf.GGUFReader(str(file))
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
        assert gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2) is names
    assert gguf.GGUFReader(str(file)) is not gguf.GGUFReader(str(file))
    assert gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2) is not names


def test_what_is_read_is_what_the_library_reads(file: Path) -> None:
    theirs = gguf.GGUFReader(str(file))
    with read_once():
        ours = gguf.GGUFReader(str(file))
    assert list(ours.fields) == list(theirs.fields)
    for name, field in theirs.fields.items():
        assert [part.tobytes() for part in ours.fields[name].parts] == [part.tobytes() for part in field.parts]
    (one,), (other,) = ours.tensors, theirs.tensors
    assert (one.name, one.tensor_type, one.shape.tolist()) == (other.name, other.tensor_type, other.shape.tolist())
    assert np.array_equal(gguf.dequantize(one.data, one.tensor_type), gguf.dequantize(other.data, other.tensor_type))


def test_an_error_leaves_the_library_as_it_was() -> None:
    reader = gguf.GGUFReader
    with pytest.raises(ZeroDivisionError), read_once():
        raise ZeroDivisionError
    assert gguf.GGUFReader is reader
