"""MDS exports are laid out as the format describes, and read by mosaicml-streaming itself."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from PIL import Image

from tests.prep.exported import EVERYTHING, write_everything
from tfshards.prep.exporting.export import export
from tfshards.prep.exporting.request import array_of

export_quietly = partial(export, log=lambda _: None)

# What reading MDS needs of mosaicml-streaming, which requires PyTorch with CUDA, and an older NumPy.
STREAMING = (
    "mosaicml-streaming==0.13.0",
    "brotli",
    "catalogue",
    "cramjam",
    "python-snappy",
    "xxhash",
    "zstd",
)
READ_MDS = """
import importlib.abc, importlib.machinery, json, sys, types
import numpy as np

class Absent(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__class_getitem__": lambda *_: object}) if name[0].isupper() else Absent(name)

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "torchvision", "transformers"}:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        return Absent(spec.name)
    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Finder())
from streaming import LocalDataset

def shown(value):
    if isinstance(value, (np.ndarray, np.generic)):
        return [str(value.dtype), list(value.shape), value.tobytes().hex()]
    if hasattr(value, "tobytes"):
        return [value.format, list(value.size), value.tobytes().hex()]
    return value.hex() if isinstance(value, bytes) else value

dataset = LocalDataset(sys.argv[1], split="train")
print(json.dumps([{k: shown(v) for k, v in dataset[n].items()} for n in range(len(dataset))]))
"""


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    """A dataset with features of every kind, and the examples of its split train."""
    root = tmp_path_factory.mktemp("every") / "every"
    return root, write_everything(root)


def test_mds_is_laid_out_as_its_format_describes(every, tmp_path):
    root, examples = every
    export_quietly(root, tmp_path / "out", to="mds")
    index = json.loads((tmp_path / "out" / "train" / "index.json").read_text())
    assert [shard["samples"] for shard in index["shards"]] == [3, 2, 2]
    columns = dict(
        zip(index["shards"][0]["column_names"], index["shards"][0]["column_encodings"], strict=True)
    )
    assert columns == {
        "big": "uint64",
        "boxes": "ndarray:float32",
        "caption": "str",
        "doubles": "ndarray:float64:2",
        "flag": "uint8",
        "flags": "ndarray:uint8:2",
        "grid": "ndarray:uint16:2,3",
        "half": "ndarray:float16:3",
        "image": "jpeg",
        "key": "str",
        "label": "int",
        "mask": "png",
        "none": "ndarray:int32",
        "small": "int8",
        "tags": "ndarray:int64",
        "words": "json",
    }
    data = (tmp_path / "out" / "train" / "shard.00000.mds").read_bytes()
    offsets = np.frombuffer(data, "<u4", 5).tolist()
    assert offsets[0] == 3
    assert offsets[-1] == len(data) == index["shards"][0]["raw_data"]["bytes"]
    assert examples[2]["image"] in data[offsets[3] : offsets[4]]


@pytest.mark.nightly
def test_mosaicml_streaming_reads_every_value(every, tmp_path):
    root, examples = every
    packages = tmp_path / "packages"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages), *STREAMING]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mosaicml-streaming cannot be installed: {done.stderr.splitlines()[-1]}")
    export_quietly(root, tmp_path / "out", to="mds")
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    command = [sys.executable, "-c", READ_MDS, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    for sample, values in zip(json.loads(done.stdout), examples, strict=True):
        for feature in EVERYTHING.features:
            value, found = values[feature.name], sample[feature.name]
            if feature.is_encoded:
                image = Image.open(io.BytesIO(value))
                assert found == [image.format, list(image.size), image.tobytes().hex()]
            elif feature.kind == "bytes":
                assert found == ([each.decode() for each in value] if feature.shape else value.decode())
            elif feature.name == "label":
                assert found == value
            else:
                array = array_of(feature, value)
                dtype = "uint8" if feature.dtype == "bool" else feature.dtype
                assert found == [dtype, list(array.shape), array.tobytes().hex()]
