"""Raw and private parts of TensorFlow: used in one file, and replaced where a release lacks them."""

import ast
import re
from pathlib import Path

import pytest

from tests.loader.conftest import NUMBERS
from tests.tables import mostly_nightly

LOADER = Path(__file__).parents[2] / "loader"
RAW_OPS = LOADER / "graph" / "raw_ops.py"
# Attributes that Keras reads from a callback
# private names of Keras and of Accelerate
OTHERS = LOADER / "training" / "resume.py", LOADER / "torch.py"


WITH_FALLBACK = sorted(set(re.findall(r'_raw\("(\w+)"', RAW_OPS.read_text())))


# Only raw_ops.py uses names without a compatibility promise of TensorFlow


def forbidden_names(tree):
    """Yield line and name of each raw, experimental or private name, which only raw_ops.py may use."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            # private attributes of the loader's own classes are allowed
            names = [] if owner in ("self", "cls") else [node.attr]
        elif isinstance(node, ast.keyword) and node.arg:
            names = [node.arg]
        for name in names:
            parts = name.split(".")
            if parts[0] == "tfshards":
                continue
            private = any(re.match(r"_(?!_)", part) for part in parts[1:] or parts)
            if (
                private
                or "raw_ops" in parts
                or "experimental" in name
                or name.startswith("tensorflow.python")
            ):
                yield node.lineno if hasattr(node, "lineno") else 0, name


def test_no_other_file_of_the_loader_uses_a_raw_experimental_or_private_name_of_tensorflow():
    found = {
        f"{path.relative_to(LOADER)}:{line} {name}"
        for path in LOADER.rglob("*.py")
        if path not in (RAW_OPS, *OTHERS)
        for line, name in forbidden_names(ast.parse(path.read_text()))
    }
    assert found == set()


DELIVERED = """
import json, sys, warnings
import tensorflow as tf
names, change, path = sys.argv[1].split(), sys.argv[2], sys.argv[3]
for name in names if change != "raw" else []:
    if change == "missing":
        delattr(tf.raw_ops, name)
    else:
        setattr(tf.raw_ops, name, lambda *, renamed: renamed)
from tfshards import loader
shuffle, found = loader.Shuffle(seed=1), []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    pad = {"remainder": "pad"}
    for more in ({}, {"shuffle": shuffle, "epochs": 2}, pad, {"on_damage": "skip", **pad}):
        for batch in loader.load(path, batch_size=4, **more):
            found.append(tf.nest.map_structure(lambda each: each.numpy().tolist(), batch))
texts = [str(each.message) for each in caught]
print(json.dumps(found), sorted(name for name in names for text in texts if f"tf.raw_ops.{name} " in text))
"""


@pytest.mark.parametrize("compression", mostly_nightly(["none", "gzip"], ["none"]))
def test_batches_need_no_raw_operations_and_each_missing_one_is_named_once(
    programs, tmp_path, write_dataset, compression
):
    shards = [[{"number": 10 * shard + each} for each in range(size)] for shard, size in enumerate((8, 9, 1))]
    path = write_dataset(tmp_path / "d", NUMBERS, {"train": shards}, compression=compression)
    found = {}
    for change in ("raw", "missing", "changed"):
        done = programs.run(["-c", DELIVERED, " ".join(WITH_FALLBACK), change, path], timeout=240)
        assert done.returncode == 0, done.stderr
        found[change] = done.stdout.splitlines()[-1].rpartition(" [")[0], done.stdout.rpartition(" [")[2]
    assert found["raw"][0] == found["missing"][0] == found["changed"][0]
    assert found["raw"][1].strip() == "]"
    named = found["missing"][1].strip(" ]\n").split(", ")
    assert len(named) == len(set(named)) > 1
    assert found["changed"][1] == found["missing"][1]
