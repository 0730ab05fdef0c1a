"""TensorFlow reads each kind of feature, two processes write what one writes, and all rows do so at night."""

import numpy as np
import pytest
import tensorflow as tf

from tests import format_reader
from tests.conformance import (
    test_annotations,
    test_arrays,
    test_examples,
    test_folders,
    test_images,
    test_options,
    test_tables,
    test_untrusted,
)
from tests.conformance.inputs import write
from tests.conformance.rows import Stored
from tests.conformance.runner import OUT, check_jobs
from tfshards import prep

MODULES = (
    *(test_annotations, test_arrays, test_examples, test_folders, test_images, test_options, test_tables),
    test_untrusted,
)
_ROWS = [
    each
    for module in MODULES
    for rows in vars(module).values()
    if isinstance(rows, list)
    for each in rows
    if getattr(each, "id", None) and isinstance(each.values[2], Stored)
]
BUILT = {each.id: each for each in _ROWS}
assert len(BUILT) == len(_ROWS), (
    f"of one name: {sorted({each.id for each in _ROWS if BUILT[each.id] is not each})}"
)
BOXES = next(name for name in BUILT if name.startswith("cxcywh-normalized_in_the_file"))
# a row for each kind of feature, dtype and form of shape
READ = [
    "class_folders",
    "RGBA_is_kept_with_4_channels",
    "gray_is_kept_with_1_channel",
    "16_bits_are_kept",
    "gray_is_kept_with_1_channel",
    "mask_turned_by_6",
    "mask_of_16_bits",
    "in_memory,_big-endian",
    "text",
    "lists",
    "bfloat16",
    "bfloat16_as_a_list",
    "declared_images",
    "class_numbers",
    "type_bool",
    "type_lists_of_bool",
    "type_large_lists_of_text",
    "type_rows",
    "type_rows_of_doubles",
    "label_lists_of_text",
    "label_null_text",
    BOXES,
    "pose_turned",
    "gzip",
]  # fmt: skip
TWICE = ["class_folders", "images_and_masks", "parquet", "in_memory,_C_order", "npz,_compressed",
"a_generator",
         "COCO", "YOLO_of_Ultralytics"]  # fmt: skip


def parsed(record, features):
    """Return the values of a record that TensorFlow's own functions find."""
    spec = {}
    for feature in features:
        is_number = feature["kind"] in ("label", "int", "float")
        dtype = tf.float32 if feature["kind"] == "float" else tf.int64 if is_number else tf.string
        shape = [1] if feature["kind"] in ("image", "mask", "raw") else feature["shape"]
        is_list = None in shape
        spec[feature["name"]] = tf.io.VarLenFeature(dtype) if is_list else tf.io.FixedLenFeature(shape, dtype)
    found = tf.io.parse_single_example(record, spec)
    return {n: v.values if isinstance(v, tf.SparseTensor) else v for n, v in found.items()}


def shown(feature, value):
    """Return a value of a record as TensorFlow decodes it."""
    dtype = tf.as_dtype(feature["dtype"] if feature["kind"] != "bytes" else "string")
    if feature["kind"] in ("image", "mask"):
        return tf.io.decode_image(value[0], feature["shape"][2] or 0, dtype, expand_animations=False).numpy()
    if feature["kind"] == "raw":
        # TensorFlow decodes most of these dtypes; NumPy has all
        return np.frombuffer(value.numpy()[0], dtype.as_numpy_dtype)
    return value.numpy()


@pytest.mark.parametrize("name", READ)
def test_tensorflow_reads_what_the_reader_of_the_page_reads(name):
    files, call, _ = BUILT[name].values
    write(files, OUT.parent)
    with prep.limited_jobs(1):
        call.build(shards=1)
    manifest = format_reader.read_manifest(format_reader.Folder(OUT))
    features = manifest["schema"]["features"]
    packed = manifest["compression"].replace("none", "").upper()
    for split, examples in format_reader.read(OUT).items():
        paths = [str(OUT / shard["path"]) for shard in manifest["splits"][split]["shards"]]
        records = tf.data.TFRecordDataset(paths, packed)
        for record, example in zip(records, examples.values(), strict=True):
            values = parsed(record, features)
            for feature in features:
                found, wanted = shown(feature, values[feature["name"]]), example[feature["name"]]
                if feature["kind"] in ("image", "mask"):
                    wanted = np.atleast_3d(format_reader.decode(wanted))
                    wanted = np.broadcast_to(wanted, (*wanted.shape[:2], found.shape[2]))
                same = np.asarray(found).astype(np.asarray(wanted).dtype).tobytes()
                assert (
                    same == np.asarray(wanted).tobytes()
                    or np.ravel(found).tolist() == np.ravel(wanted).tolist()
                )


@pytest.mark.parametrize(
    "name", [n if n in TWICE else pytest.param(n, marks=pytest.mark.nightly) for n in BUILT]
)
def test_two_processes_write_the_bytes_of_one(name):
    check_jobs(*BUILT[name].values)
