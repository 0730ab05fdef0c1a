"""Faults of the loader besides its order: pixels by options, damage, caches, weights, lists, records."""

IMAGES, DAMAGE = "tests/loader/test_images.py", "tests/loader/test_damage.py"
BOTH = f"{IMAGES}::test_tensorflow_and_numpy_deliver_the_same_pixels_of_every_file"
SIXTEEN = f"{IMAGES}::test_values_of_16_bits_are_exact_and_those_of_8_bits_are_scaled_by_257"
NAMED = f"{IMAGES}::test_images_are_resized_and_cut_as_their_names_say"
FETCHING, CACHE = "tests/loader/test_remote.py", "tests/loader/test_remote.py"
FETCHED = f"{FETCHING}::test_batches_are_those_of_a_local_copy_and_no_byte_is_fetched_twice"
BOUND = f"{FETCHING}::test_a_cache_keeps_what_came_first_and_never_fetches_more"
FLIPPED = f"{DAMAGE}::test_a_flipped_bit_is_an_error_that_names_shard_record_and_offset"
SKIPPED = f"{DAMAGE}::test_all_other_examples_keep_their_positions"
FRAMES, COPIES = "loader/reading/frames.py", "loader/reading/cache.py"
CROPS = "loader/examples/crops.py"

FAULTS = [
    (
        "a look at the first batch counts as an epoch in PyTorch",
        "loader/torch.py",
        "if self._num_calls > self._sampler.looks:",
        "if self._num_calls:",
        "tests/loader/test_frameworks.py::test_each_iteration_is_the_next_epoch_unless_it_was_a_look_or_an_epoch_is_set",
    ),
    (
        "a look at the first batch counts as an epoch",
        "loader/array_batches.py",
        "            if number:\n                self._count(first)\n",
        "            self._count(first)\n",
        "tests/loader/test_batches.py::test_an_iteration_of_one_batch_is_a_look",
    ),
    (
        "white of 8 bits is not white of 16",
        "loader/arrays/decode.py",
        "pixels.astype(np.uint16) * 257",
        "pixels.astype(np.uint16) * 256",
        SIXTEEN,
    ),
    (
        "TensorFlow's gray has other weights",
        "loader/tensors/decode.py",
        "tf.cast(mixed // 2**GRAY_SHIFT, tf.uint8)",
        "tf.cast((mixed + 2**14) // 2**GRAY_SHIFT, tf.uint8)",
        BOTH,
    ),
    (
        "the standard deviation is not scaled in the graph",
        "loader/tensors/decode.py",
        "rows *= _row(1 / (white * std), shape)",
        "rows *= _row(1 / (255 * std), shape)",
        f"{IMAGES}::test_floats_are_normalized_as_requested_and_cast_last",
    ),
    (
        "a small part of the center has no pixel",
        CROPS,
        'box = ops.maximum(np.int32(1), ops.cast(part, "int32"))',
        'box = ops.cast(part, "int32")',
        NAMED,
    ),
    (
        "each epoch has the same crops",
        CROPS,
        "random_bits(seed, CROP, epoch, ",
        "random_bits(seed, CROP, epoch * 0, ",
        f"{IMAGES}::test_an_image_depends_only_on_seed_epoch_and_example",
    ),
    (
        "the aspect ratio of a crop is turned",
        CROPS,
        "sides = [np.sqrt(area / aspect), np.sqrt(area * aspect)]",
        "sides = [np.sqrt(area * aspect), np.sqrt(area / aspect)]",
        f"{IMAGES}::test_random_boxes_are_within_the_image_and_have_the_areas_and_aspect_ratios_asked_for",
    ),
    (
        "a shard of another build is read",
        "loader/reading/opening.py",
        "if last_bytes != shard.last_bytes:",
        "if not last_bytes:",
        f"{DAMAGE}::test_damage_of_files_is_refused_by_name_before_the_first_step",
    ),
    (
        "the records of a missing shard count as sound",
        FRAMES,
        "except FormatError:\n                return False",
        "except FormatError:\n                return True",
        SKIPPED,
    ),
    (
        "sound records are skipped with a damaged one",
        "loader/reading/damage.py",
        "found = numbers[~self._frames.is_sound(numbers)]",
        "found = numbers",
        SKIPPED,
    ),
    (
        "a damaged record has a weight",
        "loader/tensors/feed.py",
        "return self._damage.without(numbers)",
        "return numbers",
        SKIPPED,
    ),
    (
        "a damaged record among sound ones is accepted",
        FRAMES,
        "if not right.all():",
        "if not right.any():",
        FLIPPED,
    ),
    (
        "a length that lies is passed on",
        FRAMES,
        "wrong = stated != np.diff(edges) - FRAME_OVERHEAD",
        "wrong = stated < 0",
        SKIPPED,
    ),
    (
        "bytes between records that are read together are not passed over",
        FRAMES,
        "starts[order] = offsets - np.repeat(pieces.offsets - begins, counts)",
        "starts[order] = np.cumsum(ends - offsets) - (ends - offsets)",
        "tests/loader/test_records.py::test_any_numbers_give_what_load_delivers",
    ),
    (
        "an error names the record before the damaged one",
        FRAMES,
        "record = number - int(self.ends[shard] - self.sizes[shard])",
        "record = number - int(self.ends[shard] - self.sizes[shard]) - 1",
        FLIPPED,
    ),
    (
        "a copy of damaged bytes is kept",
        COPIES,
        'if f"sha256:{digest.hexdigest()}" != shard.digest:',
        "if not digest.hexdigest():",
        f"{CACHE}::test_a_damaged_shard_raises_before_the_first_step_and_is_never_copied",
    ),
    (
        "the copies of another build are read",
        COPIES,
        'f"{shard.path} {shard.digest}\\n"',
        'f"{shard.path}\\n"',
        f"{CACHE}::test_a_later_run_finds_the_copies_and_replaces_damaged_ones",
    ),
    (
        "each chunk of a cache takes all of its bytes",
        COPIES,
        "np.cumsum(place.lengths[order]) <= left",
        "np.cumsum(place.lengths[order]) <= self._most_bytes",
        BOUND,
    ),
    (
        "a record counts as kept that was not written",
        COPIES,
        "os.pwrite(file.fileno(), part.data, int(offsets[first]))",
        "os.pwrite(file.fileno(), part.data[:0], int(offsets[first]))",
        BOUND,
    ),
    (
        "the header of a cached record is believed",
        COPIES,
        "found[np.isin(numbers, self.frames.lies(firsts, counts))] = False",
        "self.frames.lies(firsts, counts)",
        f"{FETCHING}::test_what_is_damaged_in_the_cache_is_fetched_again",
    ),
    (
        "a record of a window is the one after it",
        "loader/reading/windows.py",
        "where[rows] = starts\n",
        "where[rows] = np.roll(starts, -1)\n",
        FETCHED,
    ),
    (
        "a record of a bucket that states another length is left to TensorFlow",
        "loader/reading/windows.py",
        "stated == place.lengths - FRAME_OVERHEAD",
        "stated >= 0",
        "tests/loader/test_remote.py::test_a_damaged_record_is_named_as_in_a_local_file_or_skipped",
    ),
    (
        "classes without examples count for even weights",
        "loader/examples/weights.py",
        "if count and label >= 0}",
        "if label >= 0}",
        "tests/loader/test_sample_weights.py::test_all_classes_have_the_same_total_weight",
    ),
    (
        "rows of lists are those of other examples",
        "loader/tensors/batches.py",
        "rows = tf.reshape(value.values, [-1, length])",
        "rows = tf.reshape(value.values, [-1, length])[::-1]",
        "tests/loader/test_values.py::test_lists_stay_with_their_examples",
    ),
    (
        "a number below 0 is one too high",
        "loader/random_access.py",
        "np.where(numbers < 0, numbers + len(self), numbers)",
        "np.where(numbers < 0, numbers + len(self) - 1, numbers)",
        "tests/loader/test_records.py::test_a_sequence_of_examples",
    ),
]
