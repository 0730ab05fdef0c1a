"""The files of a build that other tools, or people, read instead of the manifest.

These are ``labels.txt`` and what ``tfds.builder_from_directory`` of TensorFlow Datasets requires:
``dataset_info.json`` (name, version, splits, shards), ``features.json`` (how each value is stored) and
``<feature>.labels.txt`` (class names). All follow from the manifest alone; neither TFDS nor TensorFlow is
imported. The formats are TFDS's protos as JSON, tested with TFDS 4.9.10.
"""

from __future__ import annotations

import json
import re

from tfshards.schemas import Feature, Manifest, Schema
from tfshards.schemas.json_reader import Json
from tfshards.schemas.summary import escaped

LABELS_NAME = "labels.txt"
INFO_NAME = "dataset_info.json"
FEATURES_NAME = "features.json"
# TFDS requires a version; a dataset of tfshards has a build id instead.
VERSION = "1.0.0"

_PACKAGE = "tensorflow_datasets.core.features"
_MAX_FILE_NAME = 255


def view_files(manifest: Manifest) -> dict[str, bytes]:
    """Return the content of each of these files by its name in the folder of the build.

    For TFDS an image or a mask is an ``Image``, a scalar label with class names a ``ClassLabel`` (always
    int64), another scalar a ``Scalar``, and everything else a ``Tensor``. Byte strings stay bytes, since keys
    need not be UTF-8. Splits without examples are left out, since TFDS would then fail on all splits.
    """
    schema = manifest.schema
    labels = labels_text(schema.class_names).encode("utf-8")
    files = {LABELS_NAME: labels} if labels else {}
    if not _is_readable(manifest):
        return files
    features: dict[str, Json] = {feature.name: _feature_json(feature, schema) for feature in schema.features}
    top: dict[str, Json] = {
        "pythonClassName": f"{_PACKAGE}.features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }
    named = {_labels_name(feature): labels for feature in schema.features if _is_named(feature, schema)}
    return {**files, **named, FEATURES_NAME: _to_bytes(top), INFO_NAME: _to_bytes(_info_json(manifest))}


def labels_text(class_names: tuple[str, ...]) -> str:
    """Return one line for each name, with control characters and undecodable bytes as Python escapes."""
    return "".join(f"{escaped(name)}\n" for name in class_names)


def _is_readable(manifest: Manifest) -> bool:
    """Return whether TFDS can read a dataset."""
    schema = manifest.schema
    # TFDS reads raw bytes with tf.io.decode_raw, which supports every dtype except this one
    has_dtypes = not any(feature.is_raw and feature.dtype == "uint32" for feature in schema.features)
    # it strips the lines of class names, and drops empty ones
    has_classes = all(name and name == name.strip(" ") for name in schema.class_names)
    files = [_labels_name(feature) for feature in schema.features if _is_named(feature, schema)]
    has_names = all(len(name.encode("utf-8")) <= _MAX_FILE_NAME for name in files) and all(
        name != "all" and re.fullmatch(r"[\w-]*[^\W_][\w-]*", name) for name in manifest.splits
    )
    has_shards = all(
        _template(manifest, name) for name, split in manifest.splits.items() if split.num_examples
    )
    is_plain = manifest.compression == "none" and manifest.num_examples > 0
    return has_dtypes and has_classes and has_names and has_shards and is_plain


def _is_named(feature: Feature, schema: Schema) -> bool:
    return feature.is_label and feature.shape == () and bool(schema.class_names)


def _labels_name(feature: Feature) -> str:
    """Return the name of the file of a feature's class names, as TFDS's convert_feature_name_to_filename."""
    return f"{feature.name.replace('/', '.')}.labels.txt"


def _feature_json(feature: Feature, schema: Schema) -> Json:
    if _is_named(feature, schema):
        python_class = f"{_PACKAGE}.class_label_feature.ClassLabel"
        return {"pythonClassName": python_class, "classLabel": {"numClasses": str(len(schema.class_names))}}
    dims: list[Json] = [str(-1 if dim is None else dim) for dim in feature.shape]
    content: dict[str, Json] = {"shape": {"dimensions": dims}, "dtype": feature.dtype}
    if feature.is_encoded:
        # without encodingFormat, since a dataset may hold JPEG and PNG
        return {"pythonClassName": f"{_PACKAGE}.image_feature.Image", "image": content}
    if feature.is_text:
        content["dtype"] = "string"
    content["encoding"] = "bytes" if feature.is_raw else "none"
    # Scalar does not support encoded values
    scalar = feature.shape == () and not feature.is_raw
    python_class = f"{_PACKAGE}.{'scalar.Scalar' if scalar else 'tensor_feature.Tensor'}"
    return {"pythonClassName": python_class, "tensor": content}


def _info_json(manifest: Manifest) -> dict[str, Json]:
    info: dict[str, Json] = {
        "name": _snake_case(manifest.name),
        "version": VERSION,
        "description": f"Written by tfshards from dataset.json. Build {manifest.build_id}.",
        "fileFormat": "tfrecord",
        "splits": [
            {
                "name": name,
                "filepathTemplate": _template(manifest, name),
                "numBytes": str(split.num_bytes),
                "shardLengths": [str(shard.num_examples) for shard in split.shards],
            }
            for name, split in manifest.splits.items()
            if split.num_examples
        ],
    }
    label = manifest.schema.label
    if label is not None:
        inputs = [name for name in manifest.schema.names if name not in ("key", label.name)]
        if len(inputs) == 1:
            # delivered with as_supervised=True
            info["supervisedKeys"] = {"input": inputs[0], "output": label.name}
    return info


def _template(manifest: Manifest, split: str) -> str | None:
    """Return the template of the names of shards in TFDS's syntax, or None if other builds wrote some.

    It contains the dataset's name instead of ``{DATASET}``, which would expand to TFDS's spelling of it.
    ``{SHARD_X_OF_Y}`` has five digits, or more if the count requires them. ``{FILEFORMAT}`` prevents TFDS's
    converter to other formats from overwriting the shards.
    """
    stem, paths = f"{manifest.name}-{split}.", [shard.path for shard in manifest.splits[split].shards]
    digits, count = max(5, len(str(len(paths)))), len(paths)
    head = f"{manifest.folder}/{stem}tfrecord"
    expected = [f"{head}-{index:0{digits}d}-of-{count:0{digits}d}" for index in range(count)]
    return f"{stem}{{FILEFORMAT}}-{{SHARD_X_OF_Y}}" if paths == expected and ".tfrecord" not in stem else None


def _snake_case(name: str) -> str:
    """Return the nearest name that TFDS allows: a letter, then lowercase letters, digits and '_'."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").replace(".", "_")
    return words if words[0].isalpha() else f"dataset_{words}"


def _to_bytes(value: dict[str, Json]) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode("ascii")
