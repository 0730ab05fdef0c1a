"""Describe a dataset as Croissant 1.1 does, in ``croissant.json``: its files, features, splits and classes.

Format: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html, tested with mlcroissant. Croissant
has no reader of TFRecord files: search engines and catalogs read the description, and mlcroissant yields the
records of ``splits`` and ``classes``, which it contains.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tfshards.schemas import Feature, Manifest, Schema
from tfshards.schemas.json_reader import Json
from tfshards.schemas.summary import escaped

# None of the tools that write TFRecord files has registered a media type.
_TFRECORD = "https://www.tensorflow.org/tutorials/load_data/tfrecord"
_FILES, _EXAMPLES, _SPLITS, _CLASSES = "shards", "examples", "splits", "classes"
_DTYPES = {
    "bool": "sc:Boolean",
    **{f"{sign}int{bits}": f"cr:{sign.upper()}Int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"cr:Float{bits}" for bits in (16, 32, 64)},
}
# The context of the specification; mlcroissant compares it with its own.
_CONTEXT: dict[str, Json] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def croissant_text(manifest: Manifest, mark: str) -> str:
    """Return the content of ``croissant.json``; ``mark`` is in the description of the dataset."""
    counts = ", ".join(f"{name} {split.num_examples:,}" for name, split in manifest.splits.items())
    document: dict[str, Json] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": manifest.name,
        "description": f"{mark} Build {manifest.build_id}. Examples: {counts}.",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "distribution": [*_files(manifest), _file_set(manifest)],
        "recordSet": [_splits(manifest), *_classes(manifest.schema), _examples(manifest.schema)],
    }
    return json.dumps(document, indent=1) + "\n"


def _ids(names: Sequence[str]) -> dict[str, str]:
    """Return an ``@id`` for each name: the name without spaces, which mlcroissant does not support."""
    ids: dict[str, str] = {}
    taken = set(names)
    for name in names:
        found = name
        while " " in found or (found != name and found in taken):
            found = found.replace(" ", "_") if " " in found else f"{found}_"
        taken.add(found)
        ids[name] = found
    return ids


def _files(manifest: Manifest) -> list[Json]:
    ids = _ids([shard.path for shard in manifest.shards])
    return [
        {
            "@type": "cr:FileObject",
            "@id": ids[shard.path],
            "name": shard.path,
            "description": f"Split {name}, {shard.num_examples:,} records.",
            "contentUrl": shard.path,
            "contentSize": f"{shard.num_bytes} B",
            "encodingFormat": _TFRECORD,
            "sha256": shard.digest.removeprefix("sha256:"),
        }
        for name, split in manifest.splits.items()
        for shard in split.shards
    ]


def _file_set(manifest: Manifest) -> Json:
    patterns: set[str] = {re.sub(r"\d{5,}-of-", "*-of-", shard.path) for shard in manifest.shards}
    return {
        "@type": "cr:FileSet",
        "@id": _FILES,
        "name": _FILES,
        "description": f"All shards; records are tf.train.Example, compression {manifest.compression}.",
        "encodingFormat": _TFRECORD,
        "includes": list[Json](sorted(patterns)),
    }


def _splits(manifest: Manifest) -> Json:
    return {
        "@type": "cr:RecordSet",
        "@id": _SPLITS,
        "name": _SPLITS,
        "dataType": "cr:Split",
        "key": {"@id": f"{_SPLITS}/name"},
        "field": [_field(_SPLITS, "name", "sc:Text"), _field(_SPLITS, "num_examples", "cr:Int64")],
        "data": [
            {f"{_SPLITS}/name": name, f"{_SPLITS}/num_examples": split.num_examples}
            for name, split in manifest.splits.items()
        ],
    }


def _classes(schema: Schema) -> list[Json]:
    if not schema.class_names:
        return []
    return [
        {
            "@type": "cr:RecordSet",
            "@id": _CLASSES,
            "name": _CLASSES,
            "dataType": "sc:Enumeration",
            "key": {"@id": f"{_CLASSES}/label"},
            "field": [_field(_CLASSES, "label", "cr:Int64"), _field(_CLASSES, "name", "sc:Text")],
            "data": [
                {f"{_CLASSES}/label": label, f"{_CLASSES}/name": escaped(name)}
                for label, name in enumerate(schema.class_names)
            ],
        }
    ]


def _examples(schema: Schema) -> Json:
    ids = _ids(schema.names)
    return {
        "@type": "cr:RecordSet",
        "@id": _EXAMPLES,
        "name": _EXAMPLES,
        "field": [_feature(feature, schema, ids[feature.name]) for feature in schema.features],
    }


def _feature(feature: Feature, schema: Schema, name: str) -> Json:
    dims = ["?" if dim is None else str(dim) for dim in feature.shape]
    field = {**_field(_EXAMPLES, name, _data_type(feature)), "name": feature.name}
    field["description"] = f"Kind {feature.kind}, dtype {feature.dtype}, shape [{', '.join(dims)}]."
    field["source"] = {"fileSet": {"@id": _FILES}, "extract": {"column": feature.name}}
    if feature.shape and not feature.is_encoded:
        field["isArray"] = True
        field["arrayShape"] = ",".join("-1" if dim is None else str(dim) for dim in feature.shape)
    if feature.kind == "label" and schema.class_names:
        field["references"] = {"field": {"@id": f"{_CLASSES}/label"}}
    return field


def _field(record_set: str, name: str, data_type: str) -> dict[str, Json]:
    return {"@type": "cr:Field", "@id": f"{record_set}/{name}", "name": name, "dataType": data_type}


def _data_type(feature: Feature) -> str:
    """Return the type in Croissant, or the nearest one; the description of the field has the dtype."""
    if feature.is_encoded:
        return "sc:ImageObject"
    # bfloat16 and complex numbers have none
    return _DTYPES.get(feature.dtype, "sc:Text" if feature.kind == "bytes" else "sc:Float")
