"""Describe a dataset as TensorFlow Metadata does, in ``schema.pbtxt``, for TFX and its data validation.

Format: https://github.com/tensorflow/metadata/blob/master/tensorflow_metadata/proto/v0/schema.proto as text,
tested with tensorflow-metadata. It describes the lists of ``tf.train.Example``, not what they mean: a value
of kind ``raw`` is one string. Statistics are not written: TensorFlow Data Validation computes them.
"""

from __future__ import annotations

from tfshards.schemas import Feature, Manifest, Schema
from tfshards.schemas.summary import escaped

_TYPES = {"bytes": "BYTES", "int64": "INT", "float": "FLOAT"}


def tfmd_text(manifest: Manifest, mark: str) -> str:
    """Return the content of ``schema.pbtxt``; ``mark`` is in the comment at its start."""
    schema = manifest.schema
    lines = [f"# {mark} Build {manifest.build_id}."]
    for feature in schema.features:
        lines += ["feature {", *_indented(_feature(feature, schema)), "}"]
    tensors = [line for feature in schema.features for line in _tensor(feature)]
    group = ['key: ""', "value {", *_indented(tensors), "}"]
    lines += ["tensor_representation_group {", *_indented(group), "}"]
    if any(feature.is_ragged for feature in schema.features):
        lines.append("represent_variable_length_as_ragged: true")
    return "\n".join(lines) + "\n"


def _feature(feature: Feature, schema: Schema) -> list[str]:
    lines = [f"name: {_quoted(feature.name)}", f"type: {_TYPES[feature.wire]}"]
    # an empty list may be missing in the record
    lines.append("presence { min_fraction: 1 }" if not _may_be_missing(feature) else "presence { }")
    lines += _length(feature)
    if feature.is_encoded:
        # masks are images, too
        lines.append("image_domain { minimum_supported_image_fraction: 1 }")
    elif feature.kind == "label" and schema.class_names:
        # -1 means no class
        last = len(schema.class_names) - 1
        lines.append(
            f"int_domain {{ name: {_quoted(feature.name)} min: -1 max: {last} is_categorical: true }}"
        )
        lines.append("annotation {")
        for number, name in enumerate(schema.class_names):
            lines.append(f"  tag: {_quoted(f'{number}={escaped(name)}')}")
        lines.append("}")
    elif feature.dtype == "bool" and feature.wire == "int64":
        lines.append("int_domain { min: 0 max: 1 }")
    return lines


def _may_be_missing(feature: Feature) -> bool:
    return feature.kind != "raw" and (feature.is_ragged or 0 in feature.shape)


def _length(feature: Feature) -> list[str]:
    """Return the number of values in the list of a record."""
    if feature.is_ragged:
        return [] if _may_be_missing(feature) else ["value_count { min: 0 }"]
    if feature.is_encoded or feature.kind == "raw":
        return ["shape { dim { size: 1 } }"]
    if 0 in feature.shape:
        return []
    return [f"shape {{ {_dims(feature)}}}"]


def _dims(feature: Feature) -> str:
    return "".join(f"dim {{ size: {dim} }} " for dim in feature.shape)


def _tensor(feature: Feature) -> list[str]:
    """Return how the list of a record becomes a tensor."""
    name = _quoted(feature.name)
    if feature.is_ragged:
        rows = (
            f" partition {{ uniform_row_length: {feature.row_elements} }}" if len(feature.shape) > 1 else ""
        )
        what = f"ragged_tensor {{ feature_path {{ step: {name} }}{rows} }}"
    elif 0 in feature.shape and feature.kind != "raw":
        what = f"varlen_sparse_tensor {{ column_name: {name} }}"
    else:
        dims = "" if feature.is_encoded or feature.kind == "raw" else _dims(feature)
        what = f"dense_tensor {{ column_name: {name} shape {{ {dims}}} }}"
    return ["tensor_representation {", f"  key: {name}", f"  value {{ {what} }}", "}"]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _quoted(text: str) -> str:
    """Return a string of the text format."""
    data = text.encode("utf-8")
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in data) + '"'
