"""From groups of records to batches: what parsing needs, parse, process each example, deliver."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from tfshards.loader.examples.content import MAP_SEED, Content
from tfshards.loader.options.selection import select_features
from tfshards.loader.options.worker import num_cpus
from tfshards.loader.reading.damage import PADDING
from tfshards.loader.tensors.decode import GRAPH, decode_image
from tfshards.loader.tensors.feed import Feed
from tfshards.loader.tensors.records import completed, read_groups
from tfshards.loader.tensors.stages import (
    call_method,
    fail_unless,
    flat_mapped,
    mapped,
    unbatched,
    without_autograph,
)
from tfshards.schemas import Feature, OptionsError, read_manifest

# The result of the user's function for an example: a tensor, or dicts and tuples of tensors.
Nest: TypeAlias = "tf.Tensor"
# The features by name, and the tensors that accompany them until batches are made, by name: "real", "weight",
# and the random draws for an example.
Values: TypeAlias = "tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]"
# What tf.io.parse_example needs for a feature.
Description: TypeAlias = "tf.io.FixedLenFeature | tf.io.RaggedFeature"
Batch: TypeAlias = "tuple[Nest, dict[str, tf.Tensor]]"


def without_padding(values: Nest, extra: Mapping[str, tf.Tensor]) -> Batch:
    """Return a batch without padding, which only the last batches of an epoch have."""
    real = extra["real"]

    def masked(value: tf.Tensor) -> tf.Tensor:
        mask = tf.ragged.boolean_mask if isinstance(value, tf.RaggedTensor) else tf.boolean_mask
        return mask(value, real)

    everything = (values, {name: value for name, value in extra.items() if name != "real"})
    kept: Batch = tf.cond(
        tf.reduce_all(real),
        lambda: everything,
        lambda: tf.nest.map_structure(masked, everything),
    )
    return kept


def delivered(content: Content, values: Nest, extra: Mapping[str, tf.Tensor]) -> Nest:
    """Return a batch as it is delivered to the user."""
    weights = extra.get("weight")
    if "real" in extra and content.adds_weight:
        # padding has weight 0
        every = tf.ones_like(extra["real"], tf.float32) if weights is None else weights
        weights = tf.where(extra["real"], every, 0)
    return content.delivered(values, weights)


def feature_description(
    path: str | os.PathLike[str], select: Sequence[str] | None = None
) -> dict[str, Description]:
    """Return what ``tf.io.parse_example`` needs for the records of a dataset, for pipelines of your own.

    >>> features = loader.feature_description("data/photos", select=("image", "label"))
    >>> paths = [f"data/photos/{shard.path}" for shard in read_manifest("data/photos").splits["train"].shards]
    >>> records = tf.data.TFRecordDataset(paths).batch(256)
    >>> examples = records.map(lambda batch: tf.io.parse_example(batch, features))

    Args:
        path: the directory with ``dataset.json``, or its URL.
        select: names of features; by default all.

    Returns:
        By name, in the schema's order or that of ``select``, what is parsed:

        - an image or a mask: a scalar string, its encoded bytes, for ``tf.io.decode_image``;
        - a raw tensor: a scalar string, for ``tf.reshape(tf.io.decode_raw(value, dtype), shape)``;
        - integers: int64, to be cast to the feature's dtype, of its shape;
        - floats: float32, to be cast to the feature's dtype, of its shape;
        - byte strings: strings of the feature's shape;
        - lists of any length: ragged, of the same dtypes, with the elements of rows one after another.

        Shapes and dtypes are those of ``read_manifest(path).schema[name]``.

    Raises:
        OptionsError: ``select`` names no features, or unknown ones.
        InputError: there is no dataset in ``path``.
        FormatError: the manifest breaks the format.
    """
    features = select_features(read_manifest(path).schema, select)
    return {feature.name: description_of(feature) for feature in features}


def description_of(feature: Feature) -> Description:
    """Return what ``tf.io.parse_example`` needs for a feature."""
    if feature.is_encoded or feature.is_raw:
        return tf.io.FixedLenFeature([], tf.string)
    wire_dtype = {"bytes": tf.string, "int64": tf.int64, "float": tf.float32}[feature.wire]
    if feature.is_ragged:
        # A record without the feature reads as one with an empty list; only verify distinguishes them.
        return tf.io.RaggedFeature(wire_dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature(feature.shape, wire_dtype)


# tf.io.decode_raw has no kernels for these; the same bits are decoded as the other type.
_DECODED_AS = {"uint32": "int32", "uint64": "int64"}


def parse_examples(records: tf.Tensor, features: Sequence[Feature]) -> dict[str, tf.Tensor]:
    """Return the values of ``features`` in records, which are ``tf.train.Example``.

    Args:
        records: shape ``(n,)`` string.

    Returns:
        By name, in the order of ``features``: shape ``(n, *feature.shape)`` of the feature's dtype, ragged
        for lists of any length, ``(n, None)`` or ``(n, None, k)``; an image or a mask is its encoded bytes,
        shape ``(n,)`` string.
    """
    values = tf.io.parse_example(records, {feature.name: description_of(feature) for feature in features})
    return {feature.name: _decode(values[feature.name], feature) for feature in features}


def _decode(value: tf.Tensor, feature: Feature) -> tf.Tensor:
    if feature.wire == "bytes" and not feature.is_raw:
        return value
    if not feature.is_raw:
        return _in_rows(tf.cast(value, feature.dtype), feature)
    elements = tf.io.decode_raw(value, _DECODED_AS.get(feature.dtype, feature.dtype), little_endian=True)
    if feature.dtype in _DECODED_AS:
        elements = tf.bitcast(elements, feature.dtype)
    return tf.reshape(elements, [-1, *feature.shape])


def _in_rows(value: tf.Tensor, feature: Feature) -> tf.Tensor:
    """Return lists of elements as lists of rows, if the feature has the shape ``(None, k)``."""
    length = feature.num_elements
    if len(feature.shape) != 2 or not feature.is_ragged:
        return value
    splits = value.row_splits
    message = f"the feature {feature.name!r} has values that are not rows of {length}"
    with tf.control_dependencies(
        [tf.debugging.assert_equal(splits % length, tf.zeros_like(splits), message)]
    ):
        rows = tf.reshape(value.values, [-1, length])
    return tf.RaggedTensor.from_row_splits(rows, splits // length, validate=False)


# Examples are delivered in order: with only one per processor, a slow example would block the others.
DECODED_PER_CPU = 4
# Groups that are parsed, and batches that are ready, before the training step requests them.
PARSED_AHEAD, BATCHES_AHEAD = 2, 2


def make_batches(feed: Feed) -> tf.data.Dataset:
    """Return the batches of what ``feed`` plans, some of them ready before they are requested."""
    if not feed.plan.is_next_epoch_each_time:
        return _batches(feed, *feed.begin())
    scalar = tf.TensorSpec([], tf.int64)

    def of_iteration(begin: tf.Tensor, end: tf.Tensor) -> tf.data.Dataset:
        def deliver(number: tf.Tensor) -> tf.Tensor:
            is_sign = (number == 2) | (number == feed.sure)
            return tf.cond(
                is_sign, lambda: call_method(feed.deliver, [begin, number], [scalar])[0], lambda: number
            )

        # what is requested, and not what is made ahead
        marks = mapped(tf.data.Dataset.range(1, tf.int64.max), deliver)
        marked = tf.data.Dataset.zip(_batches(feed, begin, end), marks)
        return mapped(marked, lambda batch, _: batch)

    iterations = mapped(tf.data.Dataset.range(1), lambda _: tuple(call_method(feed.begin, [], [scalar] * 2)))
    return flat_mapped(iterations, of_iteration)


def _batches(feed: Feed, begin: tf.Tensor, end: tf.Tensor) -> tf.data.Dataset:
    """Return the batches of the chunks ``[begin, end)``."""
    order, content = feed.plan.order, feed.content

    def parse(begin: tf.Tensor, end: tf.Tensor, records: tf.Tensor) -> Values:
        return _parse(feed, *completed(feed, begin, end, records))

    parsed = mapped(read_groups(feed, begin, end), parse, PARSED_AHEAD)
    if feed.group > 1 or content.by_example:
        # the values of a step, or of an example if examples are processed one by one
        parsed = unbatched(parsed)
    if not content.by_example:
        steps = parsed
    else:
        examples = parsed.map(_example_work(content), DECODED_PER_CPU * num_cpus())
        specs = [each for each in tf.nest.flatten(examples.element_spec) if isinstance(each, tf.TensorSpec)]
        batch = examples.ragged_batch if any(is_list(each.shape) for each in specs) else examples.batch
        steps = batch(order.batch_size, drop_remainder=True)
    if order.remainder == "keep":
        steps = mapped(steps, without_padding)
    return mapped(steps, lambda *batch: delivered(content, *batch)).prefetch(BATCHES_AHEAD)


def _parse(feed: Feed, begin: tf.Tensor, end: tf.Tensor, records: tf.Tensor) -> Values:
    """Return the values of the steps ``[begin, end)``: ``(steps, batch_size, ...)``, or ``(rows, ...)``.

    The latter for groups of one step, and if examples are processed one by one.
    """
    order, content = feed.plan.order, feed.content
    numbers = tf.constant(0, tf.int64)
    if content.is_random or order.remainder != "drop":
        # records that are found to be damaged now are padding
        with tf.control_dependencies([records]):
            (numbers,) = call_method(feed.numbers, [begin, end], [tf.TensorSpec([None], tf.int64)])
    parsed = parse_examples(records, content.parsed)
    values = {feature.name: parsed[feature.name] for feature in content.features}
    extra = {}
    if order.remainder != "drop":
        extra["real"] = numbers > PADDING
    if content.weighing is not None:
        specs = [tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.string)]
        found, fault = call_method(feed.weights, [parsed[content.weighing.feature.name]], specs)
        with tf.control_dependencies([fail_unless(fault)]):
            extra["weight"] = tf.identity(found)
    if content.is_random:
        drawn = {name: tf.TensorSpec([None, *shape], dtype) for name, (shape, dtype) in feed.drawn.items()}
        extra |= dict(zip(drawn, call_method(feed.draws, [begin, numbers], [*drawn.values()]), strict=True))
    if content.by_example:
        return values, extra
    return _in_steps(values, feed), _in_steps(extra, feed)


def _in_steps(values: Mapping[str, tf.Tensor], feed: Feed) -> dict[str, tf.Tensor]:
    """Return the rows of a group as ``(steps, batch_size, ...)``, or of one step with a static size."""
    rows, found = feed.plan.order.batch_size, {}
    for name, value in values.items():
        is_ragged = isinstance(value, tf.RaggedTensor)
        if feed.group > 1:
            # whole steps, as below; checks would be a quarter of all operations
            found[name] = (
                tf.RaggedTensor.from_uniform_row_length(value, rows, validate=False)
                if is_ragged
                else tf.reshape(value, [-1, rows, *value.shape[1:]])
            )
        elif is_ragged:
            splits = tf.ensure_shape(value.row_splits, [rows + 1])
            found[name] = tf.RaggedTensor.from_row_splits(value.values, splits, validate=False)
        else:
            found[name] = tf.ensure_shape(value, [rows, *value.shape[1:]])
    return found


# what is kept until batches are made
_KEPT = ("real", "weight")


def _example_work(content: Content) -> Callable[..., Batch]:
    """Return the function for ``tf.data``'s map that is called with the parsed values of one example."""

    @without_autograph
    def decode(values: Mapping[str, tf.Tensor], extra: Mapping[str, tf.Tensor]) -> Values:
        decoded = content.decoded(GRAPH, decode_image, values, extra)
        return decoded, {name: value for name, value in extra.items() if name in _KEPT}

    user_map = content.user_map
    if user_map is None:
        return decode

    # AutoGraph converts the user's function, and nothing else
    converted = tf.function(user_map)

    @without_autograph
    def work(values: Mapping[str, tf.Tensor], extra: Mapping[str, tf.Tensor]) -> Batch:
        decoded, kept = decode(values, extra)
        named = {feature.name: decoded[feature.name] for feature in content.features}
        returned = converted(named, extra[MAP_SEED])
        if returned is None or not tf.nest.flatten(returned):
            raise OptionsError(f"map_fn returns {returned}; return the tensors that go into a batch")
        return returned, kept

    return work


def is_list(shape: tf.TensorShape) -> bool:
    """Whether an example's tensor is a list of any length, of values, rows or images of one shape."""
    sides = [] if shape.rank is None else shape.as_list()
    return sides[:1] == [None] and None not in sides[1:]
