import dataclasses
import hashlib
import json
import re
import threading
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.errors import raises
from tests.tables import mostly_nightly
from tfshards import schemas
from tfshards.schemas import Feature, FormatError, InputError, Manifest, Schema, Split, Totals, read_manifest
from tfshards.schemas.manifest import FORMAT_VERSION, parse_manifest, with_digest
from tfshards.schemas.manifest_file import file_problems, write_manifest
from tfshards.schemas.names import MANIFEST_NAME

GOLDEN = Path(__file__).parent / "golden" / MANIFEST_NAME

IMAGE = Feature("image", "image", "uint8", (None, None, 3))
LABEL = Feature("label", "label", "int64")
KEY = Feature("key", "bytes", "bytes")
DIGEST = "sha256:" + "0123456789abcdef" * 4
LABELS_DIGEST = "sha256:" + "00112233" * 8
INPUTS_DIGEST = "sha256:" + "4567cdef" * 8
OTHER_TYPES = [None, True, 7, 2.5, "text", ["item"], {"field": 1}]


def shard(path, num_examples=10, num_bytes=None, labels_digest=LABELS_DIGEST):
    num_bytes = 100 * num_examples if num_bytes is None else num_bytes
    index_digest = "sha256:" + "fedcba9876543210" * 4
    digests = (DIGEST, index_digest, "00ff" * 4)
    return schemas.Shard(path, num_examples, num_bytes, num_bytes, *digests, "ff" * 8, labels_digest)


def photos() -> Manifest:
    """Return a small manifest with every kind of content."""
    train = [shard(f"photos-train-3f9a2c1b.tfrecord-{index:05d}-of-00002") for index in range(2)]
    val = [shard("photos-val-3f9a2c1b.tfrecord-00000-of-00001", 3)]
    return Manifest(
        name="photos",
        build_id="3f9a2c1b",
        schema=Schema((IMAGE, LABEL, KEY), ("cat", "h\u00fcndchen", "na\udcefve")),
        splits={
            "train": Split(tuple(train), {"cat": 12, "h\u00fcndchen": 8, "na\udcefve": 0}),
            "val": Split(tuple(val), {"cat": 1, "h\u00fcndchen": 1, "na\udcefve": 1}),
        },
        totals=Totals(
            30,
            23,
            2,
            5,
            {"rejected": {"truncated": 2}, "skipped": {"hidden name": 4, "other file": 1}},
            {"orientation applied": 2},
        ),
        options={"source": "images", "seed": 0, "resize": None, "shards": {"train": 2, "val": 1}},
        split_cuts={"splits": ["train", "val"], "all": ["e6ff"]},
        rejects_digest=DIGEST,
        inputs_digest=INPUTS_DIGEST,
    )


def document():
    return json.loads(photos().to_text())


def signed(manifest):
    """Return the document of a manifest that may contradict itself."""
    return json.loads(manifest.to_text())


def changed(place, value):
    """Return the document of ``photos`` with ``value`` at ``place``, a tuple of names and indexes."""
    top = document()
    at(top, place[:-1])[place[-1]] = value
    return top


def at(value, place):
    for step in place:
        value = value[step]
    return value


def spelled(place):
    """Return ``place`` as it is spelled in problems."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if step.isprintable() and step else repr(step))
    return text


def problems_of(top):
    try:
        parse_manifest(with_digest(json.dumps(top)), "d.json")
    except FormatError as error:
        return [(problem.place, problem.message) for problem in error.problems]
    return []


def places(value, place=()):
    """Yield the place of every value in the document whose form the format fixes."""
    if place:
        yield place
    if place in (("options",), ("split_cuts",)):
        return
    steps = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for step in steps:
        yield from places(value[step], (*place, step))


REASONS = [("totals", "reasons", outcome) for outcome in ("rejected", "skipped")]
COUNTS = [*REASONS, ("totals", "conversions")]


# Objects whose names are data, so that one more or less is not an unknown or missing field.
def is_map(place):
    return place[-1:] in (("splits",), ("label_counts",)) or place in COUNTS


# Manifests

NAMES = st.text("aZ09_.", min_size=1, max_size=5).map(lambda text: f"n{text}")
KEYS = st.binary(max_size=4).map(lambda name: name.decode("utf-8", "surrogateescape"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
RAW = st.builds(
    Feature,
    NAMES,
    st.just("raw"),
    st.sampled_from(["bool", "bfloat16", "complex128"]),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
)


@st.composite
def splits(draw, name, schema):
    sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    shards = tuple(
        shard(
            f"{name}/{index}",
            size,
            size and size * 16 + draw(st.integers(0, 2**50)),
            LABELS_DIGEST if schema.label else "",
        )
        for index, size in enumerate(sizes)
    )
    if not schema.label or draw(st.booleans()):
        return Split(shards)
    numbers = st.integers(-(2**63), 2**63 - 1).map(str)
    labels = schema.class_names or draw(st.lists(numbers, min_size=1, max_size=3, unique=True))
    first = draw(st.integers(0, sum(sizes)))
    counts = dict.fromkeys(labels, 0) | {labels[0]: first}
    counts[labels[-1]] += sum(sizes) - first
    return Split(shards, counts)


def smaller(split):
    """Return the split with shards that were compressed."""
    shards = [dataclasses.replace(one, num_bytes=one.num_bytes and 9) for one in split.shards]
    return dataclasses.replace(split, shards=tuple(shards))


@st.composite
def manifests(draw):
    features = draw(st.lists(RAW, min_size=1, max_size=3, unique_by=lambda feature: feature.name))
    class_names = ()
    if draw(st.booleans()):
        features.insert(draw(st.integers(0, len(features))), LABEL)
        class_names = tuple(draw(st.lists(KEYS, max_size=3, unique=True)))
    schema = Schema(tuple(features), class_names)
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    parts = {name: draw(splits(name, schema)) for name in names}
    reasons = {
        outcome: draw(st.dictionaries(KEYS, st.integers(0, 99), max_size=2))
        for outcome in draw(st.permutations(["rejected", "skipped"]))
    }
    conversions = draw(st.dictionaries(KEYS, st.integers(0, 99), max_size=2))
    accepted = sum(split.num_examples for split in parts.values())
    rejected, skipped = (sum(reasons[outcome].values()) for outcome in ("rejected", "skipped"))
    compression = draw(st.sampled_from(["none", "gzip"]))
    if compression == "gzip":
        parts = {name: smaller(split) for name, split in parts.items()}
    return Manifest(
        draw(NAMES),
        draw(st.text("0123456789abcdef", min_size=8, max_size=8)),
        schema,
        parts,
        Totals(accepted + rejected + skipped, accepted, rejected, skipped, reasons, conversions),
        draw(st.dictionaries(KEYS, JSON, max_size=3)),
        draw(st.dictionaries(KEYS, JSON, max_size=3)),
        compression,
        DIGEST if rejected else "",
    )


# The text


def test_the_format_is_pinned():
    assert photos().to_text() == GOLDEN.read_text(encoding="ascii")
    assert parse_manifest(GOLDEN.read_text(encoding="ascii"), "golden") == photos()


@given(manifests())
def test_any_manifest_is_read_back_from_its_text(manifest):
    text = manifest.to_text()
    parsed = parse_manifest(text, "d.json")
    assert parsed == manifest
    # dicts are equal in any order
    assert parsed.to_text() == text


@given(st.data())
def test_a_truncated_text_is_reported(data):
    text = photos().to_text().rstrip()
    end = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(FormatError, match=r"^d.json: 1 problem\n  \(document\): not readable as JSON: "):
        parse_manifest(text[:end], "d.json")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_options_that_are_not_json_are_not_written(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        dataclasses.replace(photos(), options={"x": number}).to_text()


# What is wrong with a document


@given(manifests())
@example(photos())
@settings(max_examples=4)
def test_any_value_of_a_wrong_type_is_reported_once_with_its_place(manifest):
    text = manifest.to_text()
    for place in places(json.loads(text)):
        top = json.loads(text)
        parent, step = at(top, place[:-1]), place[-1]
        # a dimension is an integer or null
        allowed = {int, type(None)} if place[-2:-1] == ("shape",) else {type(parent[step])}
        for value in OTHER_TYPES:
            if type(value) not in allowed:
                parent[step] = value
                found = [message for where, message in problems_of(top) if where == spelled(place)]
                assert len([message for message in found if re.match("is .*, must be an? ", message)]) == 1


@given(manifests())
@example(photos())
@settings(max_examples=4)
def test_any_missing_field_is_reported_once_with_its_place(manifest):
    text = manifest.to_text()
    for place in places(json.loads(text)):
        # an outcome without reasons may be left out
        if isinstance(place[-1], str) and not is_map(place[:-1]) and place not in REASONS:
            top = json.loads(text)
            del at(top, place[:-1])[place[-1]]
            assert problems_of(top).count((spelled(place), "is missing")) == 1


@given(manifests())
@example(photos())
@settings(max_examples=4)
def test_only_the_unknown_field_is_reported_with_its_place(manifest):
    text = manifest.to_text()
    for place in [(), *places(json.loads(text))]:
        top = json.loads(text)
        inner = at(top, place)
        if isinstance(inner, dict) and not is_map(place) and place not in (("options",), ("split_cuts",)):
            inner["units"] = 1
            assert problems_of(top) == [(spelled((*place, "units")), "is not a field of this format")]


@given(st.data())
def test_any_value_at_any_place_is_read_or_reported(data):
    top = document()
    place = data.draw(st.sampled_from(list(places(top))))
    at(top, place[:-1])[place[-1]] = data.draw(JSON)
    found = problems_of(top)
    if found:
        assert all(place.isprintable() for place, _ in found)
    else:
        again = json.loads(parse_manifest(with_digest(json.dumps(top)), "d.json").to_text())
        # the digests of two spellings differ
        assert again | {"digest": ""} == top | {"digest": "", "requires": "tfshards>=0.1"}


SHARD = "splits val shards 0"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("name", "a b", "'a b' must be letters"),
        ("build_id", "3F9A2C1B", "is '3F9A2C1B', must be 8 lower-case hex digits"),
        ("build_id", "3f9a2c1", "is '3f9a2c1', must be 8"),
        ("format_version", 0, "is 0, must lie between 1"),
        ("splits", {}, "is empty, must hold at least one"),
        ("splits train shards", [], "is empty, must hold at least one"),
        ("splits val num_examples", 4, "is 4, but the shards hold 3"),
        ("splits val label_counts cow", 0, "is not a class of the schema"),
        (f"{SHARD} path", "../a", "'../a' must not contain '..'"),
        (f"{SHARD} digest", "md5:0123", "is 'md5:0123', must be 'sha256:' and 64 lower"),
        (f"{SHARD} record_bytes", 47, "is 47, but 3 records need at least 48"),
        (f"{SHARD} num_bytes", 0, "is 0, but there are 3 records"),
        (f"{SHARD} index_digest", "", "is '', must be 'sha256:' and 64 lower"),
        (f"{SHARD} labels_digest", "", "is '', must be 'sha256:' and 64 lower"),
        (f"{SHARD} examples_digest", "0" * 17, "is '00000000000000000', must be 16 lower"),
        (f"{SHARD} last_bytes", "f", "is 'f', must be up to 8 bytes in hex"),
        ("compression", "zstd", "is 'zstd', must be none or gzip"),
        ("rejects_digest", "", "is '', must be 'sha256:'"),
        ("inputs_digest", "md5:0", "is 'md5:0', must be"),
        ("digest", "md5:0", "is 'md5:0', must be"),
        ("totals entries", 31, "is 31, but accepted + rejected + skipped is 30"),
        ("totals accepted", 22, "is 22, but the splits hold 23 examples"),
        ("totals reasons rejected", {}, "adds up to 0, but totals.rejected is 2"),
        ("totals reasons lost", {"x": 1}, "is not a field of this format"),
        ("schema features 1 dtype", "uint64", "is 'uint64', but kind 'label' can only be"),
    ],
)
def test_contradictory_fields_are_reported(place, value, message):
    steps = tuple(int(step) if step.isdecimal() else step for step in place.split())
    found = [problem for where, problem in problems_of(changed(steps, value)) if where == spelled(steps)]
    assert any(problem.startswith(message) for problem in found), found


@pytest.mark.parametrize(
    ("place", "value", "reported", "message"),
    [
        (("label_counts", "cat"), 2, "splits.val.label_counts", "adds up to 4, but the shards hold 3"),
        (("shards", 0, "path"), photos().shards[0].path, "splits", "-00000-of-00002' is listed 2 times"),
        (("shards", 0, "num_bytes"), 299, "splits", "has 299 bytes, but records of 300 bytes without"),
    ],
)
def test_a_contradiction_of_several_fields_is_reported_where_they_are(place, value, reported, message):
    found = problems_of(changed(("splits", "val", *place), value))
    assert any(where == reported and message in problem for where, problem in found), found


@pytest.mark.parametrize("number", [1, 16])
def test_a_shard_without_examples_is_empty(number):
    top = document()
    top["splits"]["val"]["shards"].append(shard("empty", 0, 0).to_json())
    assert problems_of(top) == []
    top["splits"]["val"]["shards"][1] |= {"num_bytes": number, "record_bytes": number}
    message = f"is {number}, but a shard without examples is empty"
    names = ("num_bytes", "record_bytes")
    assert problems_of(top) == [(f"splits.val.shards[1].{name}", message) for name in names]


def test_the_smallest_records_take_16_bytes():
    top = document()
    top["splits"]["val"]["shards"][0] |= {"num_bytes": 48, "record_bytes": 48}
    assert problems_of(top) == []


def test_a_digest_of_rejects_belongs_to_rejects():
    top = signed(dataclasses.replace(photos(), totals=Totals(23, 23)))
    assert problems_of(top) == [("rejects_digest", "is given, but totals.rejected is 0")]


CONTENT = {
    "the name": {"name": "pictures"},
    "the schema": {"schema": Schema((IMAGE, LABEL, KEY), ("cat", "h\u00fcndchen", "rabbit"))},
    "the options": {"options": {"seed": 1}},
    "the rejects": {"rejects_digest": LABELS_DIGEST},
    "the inputs": {"inputs_digest": LABELS_DIGEST},
    "the compression": {"compression": "gzip"},
    "the order of splits": {"splits": dict(reversed(photos().splits.items()))},
    "a split less": {"splits": {"train": photos().splits["train"]}},
}


@pytest.mark.parametrize("changes", CONTENT.values(), ids=CONTENT)
def test_the_id_of_the_content_depends_on(changes):
    assert dataclasses.replace(photos(), **changes).content_id() != photos().content_id()


def test_the_id_of_the_content_depends_on_the_bytes_of_every_shard():
    found = {photos().content_id()}
    for name, split in photos().splits.items():
        for one in split.shards:
            other = dataclasses.replace(one, digest=LABELS_DIGEST)
            shards = tuple(other if each is one else each for each in split.shards)
            splits = {**photos().splits, name: dataclasses.replace(split, shards=shards)}
            found.add(dataclasses.replace(photos(), splits=splits).content_id())
    assert len(found) == 4


def test_the_id_of_the_content_depends_neither_on_names_of_files_nor_on_skipped_entries():
    manifest = photos()
    renamed = {}
    for name, split in manifest.splits.items():
        shards = tuple(dataclasses.replace(one, path=f"{one.path}-x") for one in split.shards)
        renamed[name] = dataclasses.replace(split, shards=shards)
    totals = dataclasses.replace(manifest.totals, entries=31, skipped=6)
    other = dataclasses.replace(manifest, splits=renamed, build_id="00000000", totals=totals)
    assert other.content_id() == manifest.content_id()
    assert re.fullmatch("[0-9a-f]{8}", manifest.content_id())


@pytest.mark.parametrize("first", mostly_nightly(range(8), kept=[0]))
def test_a_changed_byte_anywhere_is_detected(first):
    text = photos().to_text().encode()
    for place in range(first, len(text), 8):
        for bit in range(8):
            flipped = text[:place] + bytes([text[place] ^ 1 << bit]) + text[place + 1 :]
            with pytest.raises(FormatError, match=r"^d.json: "):
                parse_manifest(flipped.decode("latin-1"), "d.json")


@pytest.mark.parametrize(
    "text",
    [
        photos().to_text().replace('"seed": 0', '"seed": 1'),
        photos().to_text().replace('"digest": ', '"digest" : '),
        json.dumps(document(), sort_keys=True),
    ],
)
def test_a_text_that_was_edited_or_formatted_again_is_refused(text):
    with pytest.raises(FormatError, match="digest: does not match: the manifest was changed or damaged"):
        parse_manifest(text, "d.json")


def test_the_digest_is_that_of_the_text_with_zeros_in_its_place():
    text = photos().to_text()
    digest = json.loads(text)["digest"].removeprefix("sha256:")
    assert text.count(digest) == 1
    assert hashlib.sha256(text.replace(digest, "0" * 64).encode()).hexdigest() == digest


def test_the_name_of_a_split_is_checked_as_that_of_the_dataset():
    top = document()
    top["splits"]["a/b"] = top["splits"].pop("val")
    [(place, message)] = problems_of(top)
    assert (place, message[:14]) == ("splits", "the name 'a/b'")


@pytest.mark.parametrize(
    ("labels", "dtype", "wrong"),
    [
        (["0", "-1", "42", "9223372036854775807", "-9223372036854775808"], "int64", []),
        (["9223372036854775808"], "int64", ["9223372036854775808"]),
        (["255", "256", "-1"], "uint8", ["256", "-1"]),
        (["01", "-0", "+1", " 1", "1.0"], "int64", ["01", "-0", "+1", " 1", "1.0"]),
        (["", "\u0661", "cat", "9" * 5000], "int64", ["''", "\u0661", "cat", "9" * 5000]),
    ],
)
def test_classes_without_names_are_counted_by_number(labels, dtype, wrong):
    schema = Schema((Feature("label", "label", dtype), KEY))
    counts = dict.fromkeys(labels, 0) | {"7": 10}
    manifest = Manifest("a", "0" * 8, schema, {"all": Split((shard("x"),), counts)}, Totals(10, 10))
    message = f"is not an integer of type {dtype}, and the schema has no class names"
    expected = [(f"splits.all.label_counts.{label}", message) for label in wrong]
    assert problems_of(signed(manifest)) == expected


@pytest.mark.parametrize("feature", [KEY, Feature("tags", "label", "int64", (3,))])
def test_only_the_classes_of_a_scalar_label_are_counted(feature):
    split = Split((shard("x", labels_digest=""),), {"1": 10})
    manifest = Manifest("a", "0" * 8, Schema((feature,)), {"all": split}, Totals(10, 10))
    message = "is not empty, but the schema has no scalar feature of kind 'label'"
    assert problems_of(signed(manifest)) == [("splits.all.label_counts", message)]
    uncounted = dataclasses.replace(manifest, splits={"all": Split((shard("x", labels_digest=""),))})
    assert problems_of(signed(uncounted)) == []
    labeled = dataclasses.replace(manifest, splits={"all": Split((shard("x"),))})
    message = "is given, but the schema has no scalar feature of kind 'label'"
    assert problems_of(signed(labeled)) == [("splits.all.shards[0].labels_digest", message)]


def test_labels_are_not_checked_against_a_faulty_schema():
    top = changed(("schema", "features", 1), 3)
    shard = top["splits"]["val"]["shards"][0]
    shard["labels_digest"] = ""
    assert problems_of(top) == [("schema.features[1]", "is 3, must be an object")]
    shard["labels_digest"] = "md5:0"
    assert [place for place, _ in problems_of(top)][1:] == ["splits.val.shards[0].labels_digest"]


def test_a_shard_has_the_digests_of_its_index_and_labels():
    s = shard("part/x")
    assert s.companion_digests == {"part/index/x.idx": s.index_digest, "part/index/x.labels": LABELS_DIGEST}
    assert list(shard("x", labels_digest="").companion_digests) == ["index/x.idx"]


def test_a_wrong_count_is_not_treated_as_zero():
    found = dict(problems_of(changed(("splits", "val", "shards", 0, "num_examples"), "3")))
    assert found["splits.val.shards[0].num_examples"] == "is '3', must be an integer"
    assert "splits.val.shards[0].num_bytes" not in found


def test_two_missing_paths_are_not_reported_as_repeated():
    top = document()
    for item in top["splits"]["train"]["shards"]:
        del item["path"]
    assert problems_of(top) == [(f"splits.train.shards[{i}].path", "is missing") for i in range(2)]


def test_all_problems_are_reported_at_once():
    top = document()
    top["name"] = ""
    top["schema"]["features"][0]["dtype"] = "int8"
    top["schema"]["class_names"].append("cat")
    top["splits"]["train"]["shards"][1]["path"] = "/tmp/x"
    top["splits"]["val"]["shards"][0]["digest"] = "?"
    top["splits"]["val"]["num_examples"] = 5
    top["totals"]["entries"] = 31
    del top["options"]
    with pytest.raises(FormatError, match=r"^data/dataset.json: 8 problems\n") as caught:
        parse_manifest(with_digest(json.dumps(top)), "data/dataset.json")
    assert [problem.place for problem in caught.value.problems] == [
        "name",
        "schema.features[0].dtype",
        "schema.class_names",
        "splits.train.shards[1].path",
        "splits.val.shards[0].digest",
        "splits.val.num_examples",
        "totals.entries",
        "options",
    ]
    assert all(str(problem) in str(caught.value) for problem in caught.value.problems)


@pytest.mark.parametrize(("text", "found"), [("3", "3"), ("null", "null"), ("[{}]", r"\[{}\]")])
def test_a_document_that_is_not_an_object_is_reported(text, found):
    with pytest.raises(FormatError, match=rf"\(document\): is {found}, must be an object"):
        parse_manifest(text, "d.json")


@pytest.mark.parametrize(
    ("requires", "needed"),
    [
        ("tfshards>=3.2", "tfshards>=3.2"),
        (None, "a newer tfshards"),
        (["tfshards>=3"], "a newer tfshards"),
        ("\x1b[31m", "a newer tfshards"),
    ],
)
def test_a_newer_format_is_reported_with_the_release_that_reads_it_and_nothing_else(requires, needed):
    newer = {"format_version": FORMAT_VERSION + 1, "requires": requires, "shards": "elsewhere"}
    expected = f"is {FORMAT_VERSION + 1}, but this release reads up to {FORMAT_VERSION}; install {needed}"
    assert problems_of(newer) == [("format_version", expected)]


def test_a_manifest_of_20_000_equal_shards_and_classes_names_each():
    shards = (shard("same", 1),) * 20_000
    names = tuple(f"class {index}" for index in range(20_000))
    split = Split(shards, dict.fromkeys(names, 1))
    top = Manifest("a", "0" * 8, Schema((LABEL,), names), {"all": split}, Totals(20_000, 20_000))
    top = signed(top)
    top["schema"]["class_names"] += names
    # 0.4 s; half a minute if every shard or class were compared with all others
    assert len(problems_of(top)) == 20_001


# The file


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"{}", "13 problems\n  format_version: is miss"),
        (b'{"name": "\xff"}', "1 problem\n.*is not UTF-8: .*0xff"),
    ],
)
def test_the_error_of_a_faulty_file_names_it(tmp_path, data, found):
    (tmp_path / MANIFEST_NAME).write_bytes(data)
    with pytest.raises(FormatError, match=f"^{tmp_path}/dataset.json: {found}"):
        read_manifest(tmp_path)


def test_the_reason_why_a_manifest_cannot_be_read_is_reported(tmp_path):
    with raises(InputError, "dataset-missing", manifest="dataset.json"):
        read_manifest(tmp_path)
    with raises(InputError, "path-missing"):
        read_manifest(tmp_path / "gone")
    (tmp_path / MANIFEST_NAME).mkdir()
    with raises(InputError, "dataset-unreadable"):
        read_manifest(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with raises(InputError, "dataset-no-folder", manifest="dataset.json"):
        read_manifest(tmp_path / "file")


def test_an_invalid_manifest_is_not_written(tmp_path):
    write_manifest(photos(), tmp_path)
    faulty = dataclasses.replace(photos(), totals=Totals(1, 1), rejects_digest="")
    with pytest.raises(FormatError, match=r"totals\.accepted: is 1, but the splits hold 23"):
        write_manifest(faulty, tmp_path)
    assert read_manifest(tmp_path) == photos()


def test_a_reader_sees_the_old_manifest_or_the_new_one(tmp_path):
    versions = [photos(), dataclasses.replace(photos(), build_id="00000000")]
    write_manifest(versions[0], tmp_path)
    seen, done = [], threading.Event()

    def poll():
        while not done.is_set():
            try:
                seen.append(read_manifest(tmp_path))
            except Exception as error:
                seen.append(error)

    reader = threading.Thread(target=poll)
    reader.start()
    for number in range(60):
        write_manifest(versions[number % 2], tmp_path)
    done.set()
    reader.join()
    assert len(seen) > 5
    assert [one for one in seen if one not in versions] == []
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST_NAME]


# The shards


def test_missing_shards_and_wrong_sizes_are_all_reported(tmp_path):
    manifest = photos()
    for one in manifest.shards:
        (tmp_path / one.path).write_bytes(bytes(one.num_bytes))
    assert file_problems(manifest, tmp_path) == []
    first, _, third = (one.path for one in manifest.shards)
    (tmp_path / first).unlink()
    (tmp_path / third).write_bytes(bytes(299))
    assert [str(problem) for problem in file_problems(manifest, str(tmp_path))] == [
        f"{first}: cannot be read: No such file or directory",
        f"{third}: has 299 bytes, but the manifest lists 300",
    ]
