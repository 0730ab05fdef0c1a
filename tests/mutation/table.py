"""Which tests run over the mutants of which module, and the mutants that no test can find."""

from __future__ import annotations

# Imported once, before a process is forked for each mutant; none of them imports tfshards.
IMPORTS = ("pytest", "hypothesis", "numpy", "PIL.Image", "pyarrow.parquet", "google_crc32c", "tensorflow")

_IN_ORDER = "tests/loader/test_order.py::test_"
_BITS = (
    _IN_ORDER + "the_random_bits_are_those_of_splitmix64",
    _IN_ORDER + "the_random_bits_are_pinned",
    _IN_ORDER + "the_seed_of_an_order_depends_on_the_dataset",
    _IN_ORDER + "the_order_of_an_epoch_never_changes_between_releases",
)
_EPOCH = (
    _IN_ORDER + "the_order_of_an_epoch_never_changes_between_releases",
    _IN_ORDER + "the_positions_of_an_epoch_and_its_intervals_are_the_same_members",
    _IN_ORDER + "lanes_are_entered_after_their_first_position_if_each_has_two",
    _IN_ORDER + "a_full_permutation_leaves_no_neighbors_together",
)

_IN_POSITIONS = "tests/loader/test_positions.py::test_"
_RESUMED = (
    _IN_POSITIONS + "the_facts_of_an_order_never_change_between_releases",
    _IN_POSITIONS + "a_shuffle_has_the_lanes_and_runs_of_the_position_unless_they_are_given",
    _IN_POSITIONS + "workers_that_cannot_resume_a_run_are_refused",
    _IN_POSITIONS + "workers_that_divide_the_lanes_can_resume_a_run",
    _IN_POSITIONS + "a_run_starts_before_its_end",
    _IN_POSITIONS + "the_default_lanes_of_a_run_of_an_unknown_number_of_workers_are_refused",
    _IN_POSITIONS + "a_run_with_a_different_order_cannot_be_resumed",
    _IN_POSITIONS + "a_run_of_a_different_split_or_dataset_cannot_be_resumed",
)

_IN_VERIFY = "tests/prep/test_verify.py::test_"
_CHECKED = (
    _IN_VERIFY + "a_record_that_violates_the_schema_is_named",
    _IN_VERIFY + "intact_records_have_no_fault",
    _IN_VERIFY + "lists_of_any_length_are_valid",
    _IN_VERIFY + "integers_beyond_their_dtype_are_named",
    _IN_VERIFY + "a_list_of_another_type_than_in_the_schema_is_named",
    "tests/prep/test_adopt.py::test_verify_reports_an_empty_list_of_another_type_which_tensorflow_refuses",
    "tests/prep/test_adopt.py::test_a_dropped_feature_is_not_a_fault_but_an_unknown_one_is",
)

_IN_DUPLICATES = "tests/prep/test_duplicates.py::test_"
_COMPARED = (
    _IN_DUPLICATES + "the_digest_of_content_is_that_of_the_record_without_key_and_label",
    _IN_DUPLICATES + "the_first_of_equal_rows_is_kept",
    _IN_DUPLICATES + "the_label_of_a_table_is_excluded_under_any_name",
    _IN_DUPLICATES + "labels_alone_cannot_be_compared",
    _IN_DUPLICATES + "stored_values_are_compared",
)

_IN_CHOOSE = "tests/loader/test_choose.py::test_"
_CHOSEN = (
    _IN_CHOOSE + "a_class_is_chosen_by_its_name_or_its_number",
    _IN_CHOOSE + "any_number_of_datasets_is_mixed",
    _IN_CHOOSE + "a_directory_has_one_weight_in_a_mix",
    _IN_CHOOSE + "parts_of_ratios_are_disjoint_and_complete",
    _IN_CHOOSE + "invalid_selections_are_refused",
    _IN_CHOOSE + "a_mix_names_the_differences_of_its_datasets",
    _IN_CHOOSE + "parts_are_disjoint_and_complete_and_a_rest_is_the_complement",
)

_IN_CLASSES = "tests/prep/test_class_numbers.py::test_"
_IN_CAPTIONS = "tests/prep/test_captions.py::test_"
_PLANNED = (
    # finds most of them
    "tests/prep/test_golden.py::test_the_bytes_of_a_build_never_change_between_releases",
    "tests/prep/test_plan.py::test_a_seed_fits_in_int64_and_is_not_negative",
    "tests/prep/test_plan.py::test_the_plan_id_depends_on_all_options_but_not_on_their_order",
    "tests/prep/test_build.py::test_the_number_of_shards_follows_from_their_size",
    "tests/prep/test_build.py::test_ratios_for_a_source_that_has_splits_are_an_error",
    "tests/prep/test_build.py::test_stratifying_requires_labels",
    _IN_CLASSES + "rows_without_a_class_are_of_no_class_in_a_plan",
    "tests/prep/test_classes.py::test_many_classes_missing_from_a_split_are_reported_in_one_line",
    "tests/prep/test_print.py::test_classes_are_listed_by_their_numbers_and_numbers_as_names_are_warned_of",
    _IN_CAPTIONS + "rows_of_one_image_stay_in_one_split",
    _IN_CAPTIONS + "other_groups_are_those_of_the_user",
    _IN_CAPTIONS + "one_row_per_image_is_split_as_before",
    "tests/test_mistakes.py::test_build_and_plan_name_the_argument_of_a_wrong_type",
)

# The tests of a module, run in this order until one fails.
TESTS: dict[str, tuple[str, ...]] = {
    "prep/planning/options.py": (
        "tests/prep/test_shard_counts.py",
        "tests/prep/test_options.py",
        "tests/prep/test_cli.py::test_every_option_reaches_the_build",
        "tests/prep/test_golden.py::test_the_bytes_of_a_build_never_change_between_releases",
    ),
    "schemas/digests.py": ("tests/schemas/test_digests.py", "tests/schemas/test_crc32c.py"),
    "schemas/index.py": ("tests/schemas/test_index.py", "tests/schemas/test_labels.py"),
    "prep/planning/balance.py": ("tests/prep/test_plan.py",),
    "prep/planning/splits.py": ("tests/prep/test_splits.py",),
    "loader/order/epoch.py": (*_BITS, *_EPOCH),
    "loader/order/assignment.py": ("tests/loader/test_assign.py",),
    "loader/order/population.py": ("tests/loader/test_population.py",),
    "loader/order/plan.py": (*_RESUMED, *_CHOSEN, "tests/loader/test_plan.py"),
    "prep/records/example.py": (
        "tests/prep/test_example.py",
        "tests/prep/test_relabel.py::test_a_label_is_replaced_wherever_it_is_and_nothing_else",
        "tests/prep/test_merge_splits.py::test_a_prefix_of_the_key_keeps_the_bytes_of_all_other_values",
        "tests/prep/test_merge_splits.py::test_a_record_without_a_key_is_not_prefixed",
    ),
    "prep/planning/group_splits.py": (
        # finds most of them, and quickly
        "tests/prep/test_group_splits.py::test_membership_of_many_small_datasets_never_changes_between_releases",
        "tests/prep/test_group_splits.py",
    ),
    "prep/records/values.py": (*_CHECKED, *_COMPARED),
    "prep/planning/plan.py": _PLANNED,
    "prep/records/shard_file.py": (
        "tests/prep/test_shard_file.py",
        "tests/prep/test_golden.py::test_the_bytes_of_a_build_never_change_between_releases",
    ),
    "prep/records/frames.py": (
        "tests/prep/test_reader.py",
        "tests/prep/test_tfrecord.py",
        "tests/prep/test_shard_file.py::test_a_length_beyond_the_compressed_data_takes_no_memory",
        "tests/storage/test_remote_verbs.py::test_the_frames_of_a_shard_in_a_bucket_are_those_on_a_disk",
    ),
    "prep/planning/leaks.py": ("tests/prep/test_leaks.py",),
}

_CACHE = "the size of a cache changes no value"
_ALWAYS = "the pattern is a repetition, which matches any text"
_INDEX = "schemas/index.py"
_SOUND = "sound = match.end() if match else 0"
_LINE = 'line, found = text.count("\\n", 0, sound) + 1, text[sound:].split("\\n", 1)[0][:40]'
_ROWS = 'rows = np.fromstring(text, dtype=np.int64, sep=" ").reshape(-1, 2)'
_BALANCE = "prep/planning/balance.py"
_LIGHTEST = "lightest = [(0, shard) for shard in range(num_shards)]"
_SAME_START = "all shards start with the same number of bytes, and only comparisons of them count"
_UNCHANGED = "unchanged = all(len(now) == len(before) for now, before in zip(kept, layout, strict=True))"
_SPLITS = "prep/planning/splits.py"
_PARTS = "examples = {name: np.sort(np.concatenate(part)) for name, part in zip(names, parts, strict=True)}"
_EPOCHS = "loader/order/epoch.py"
_STATES = "states = tf.concat([tf.fill([whole], of_run), tf.fill([entered], of_lane)], axis=0)"
_HASHED = "bits = as_bits(hashed(states, tf.concat([words[:whole], words[:entered]], axis=0)))"
_MOVED = "moved = tf.concat([moved, tf.constant([whole], tf.int64)], axis=0)"
_VECTORS = "the first axis of a vector is also its last one"
_ASSIGNMENT = "loader/order/assignment.py"
_POPULATION = "loader/order/population.py"
_PAIRED = "pairs = zip(ranges.starts.tolist(), ranges.sizes.tolist(), strict=True)"
_DIVISORS = "return [divisor for divisor in range(1, number + 1) if number % divisor == 0]"
_DIVISOR = "return next(divisor for divisor in range(min(number, most), 0, -1) if number % divisor == 0)"
_LISTED = (
    'return ", ".join(map(str, numbers[:-1])) + f" or {numbers[-1]}" if len(numbers) > 1 else str(numbers[0])'
)
_STRICT = "rows = zip(self.offsets.tolist(), self.lengths.tolist(), strict=True)"

_GROUPS = "prep/planning/group_splits.py"
_STEPS = "a limit of the time: one step of a long search more or less"
_PAIRS = "return ((one, other) for one in range(number) for other in range(one + 1, number))"
_SAME_PAIRS = "an exchange within a split gains nothing, and one that is found twice is the same"
_EXAMPLE = "prep/records/example.py"
_VARINTS = "@lru_cache(maxsize=1 << 16)"
_KEY = "return strings[0] if len(strings) == 1 else None"
_FEATURE = 'return cast("bytes", self._features[name].SerializeToString(deterministic=True))'
_PARTED = "the bytes are the same in any number of parts"
_NUMBER = "yield _Field(tag >> 3 if wire_type == 2 else 0, start, value, at)"

_VALUES = "prep/records/values.py"
_IS_WANTED = "if values and not isinstance(values[0], wanted):"
_FOUND = 'return f"is a list of {type(values[0]).__name__} instead of {wanted.__name__}"'
_BYTES = 'length = len(cast("list[bytes]", values)[0])'
_ONE_TYPE = "all values of a list have one type"
_CHOOSE = "loader/order/plan.py"
_BASES = "taken(np.arange(base, base + size), part) for base, size in zip(bases, source.sizes, strict=True)"
_RATED = "for name, numbers in zip(ratios, members, strict=True):"
_QUOTAS = "for name, quota in zip(ratios, quotas, strict=True):"
_PLAN = "prep/planning/plan.py"
_AT_ONCE = "_KEYS_AT_ONCE = 1 << 16"
_JOINED = "the digest is the same for any number of keys that are joined"
_COUNTED = "found = dict(zip(values.tolist(), counts.tolist(), strict=True))"
_ORDER = "loader/order/plan.py"
_STEPS_LEFT = "return max(0, ((self.epochs or 1) - self.begin.epoch) * steps - self.begin.step)"
_NO_STEPS = "without an end, and with steps, the line before has returned"
_SEED = "seed=order_seed(shuffle.seed, source.manifest.build_id) if shuffle is not None else 0,"
_UNUSED = "the stored order has no runs, which alone need the seed"
_LEAKS = "prep/planning/leaks.py"
_COMPARED_SPLITS = "if len(splits) < 2 or isinstance(listing.keys, RowKeys):"
_NO_LEAKS = "within one split, and among numbers of rows, no rule finds any"
_SHARD_FILE = "prep/records/shard_file.py"
_WRITTEN = "_WRITE_BYTES = 1 << 16"
_HASHED_AT_ONCE = "_HASHED_BYTES = 1 << 20"
_GROUPED = "groups of any size have the same bytes"
_UPDATED = 'self._digest.update(group[0] if len(group) == 1 else b"".join(group))'
_IS_FILLED = "if filled >= num_bytes:"
_IS_SMALL = "if len(buffer) < SMALL_BYTES:"
_NEXT_GROUP = "group, filled = [], 0"
_READER = "prep/records/frames.py"
_BUFFERED = "_BUFFER_BYTES = 1 << 20"
_PART_SIZE = "_PART_BYTES = 1 << 26"
_READ = "data = file.read(length) if length <= _BUFFER_BYTES else _read_long(file, length)"
_ANY_BUFFER = "the same bytes are read with buffers and in parts of any size"
_NO_FRAME = "no frame begins there, and the first one is found by a seek"
_FOOTER = "if FOOTER.unpack(footer)[0] == checksum:"

# (module, line before, line after): the reason
EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("prep/records/frames.py", "@lru_cache(maxsize=1024)", "@lru_cache(maxsize= 1025)"): _CACHE,
    ("prep/records/frames.py", "@lru_cache(maxsize=1024)", "@lru_cache(maxsize= 1023)"): _CACHE,
    (
        "schemas/index.py",
        "return np.frombuffer(data, dtype=_DTYPE).astype(np.int64, copy=False)",
        "return np.frombuffer(data, dtype=_DTYPE).astype(np.int64, copy=True)",
    ): "a copy has the same values",
    (
        "schemas/digests.py",
        "entries = np.arange(256, dtype=np.uint32)",
        "entries = np.arange( 257, dtype=np.uint32)",
    ): "the table is read by a byte",
    (_INDEX, _SOUND, "sound = match.end() if match else 1"): _ALWAYS,
    (_INDEX, _SOUND, "sound = match.end() if match else -1"): _ALWAYS,
    (
        _INDEX,
        _LINE,
        _LINE.replace('"\\n", 0, sound', '"\\n", 1, sound'),
    ): "no sound text starts with a newline",
    (_INDEX, _LINE, _LINE.replace('"\\n", 1)[0]', '"\\n", 2)[0]')): "only the first part is used",
    (_INDEX, _ROWS, _ROWS.replace("-1", "- 2")): "NumPy infers the length from any negative number",
    (_INDEX, _STRICT, _STRICT.replace("True", "False")): "offsets are computed from lengths",
    (_BALANCE, _LIGHTEST, _LIGHTEST.replace("0", " 1")): _SAME_START,
    (_BALANCE, _LIGHTEST, _LIGHTEST.replace("0", " -1")): _SAME_START,
    (_BALANCE, _UNCHANGED, _UNCHANGED.replace("True", "False")): "kept has as many shards as layout",
    (_SPLITS, _PARTS, _PARTS.replace("True", "False")): "there is one part for each name",
    (_EPOCHS, _STATES, _STATES.replace("axis=0", "axis= -1")): _VECTORS,
    (_EPOCHS, _HASHED, _HASHED.replace("axis=0", "axis= -1")): _VECTORS,
    (_EPOCHS, _MOVED, _MOVED.replace("axis=0", "axis= -1")): _VECTORS,
    (_ASSIGNMENT, "num_shards: int = 1", "num_shards: int = 0"): "the one use counts no shard as one",
    (_ASSIGNMENT, _DIVISORS, _DIVISORS.replace("+ 1", "+ 2")): "number + 1 never divides number",
    (_ASSIGNMENT, _DIVISOR, _DIVISOR.replace("0, -1", "-1, -1")): "1 divides each number",
    (_ASSIGNMENT, _LISTED, _LISTED.replace("[0]", "[ -1]")): "of one number",
    (_POPULATION, "return int(self.pattern.shape[0])", "return int(self.pattern.shape[ -1])"): _VECTORS,
    (_POPULATION, "return int(self.members.shape[0])", "return int(self.members.shape[ -1])"): _VECTORS,
    (_POPULATION, _PAIRED, _PAIRED.replace("True", "False")): "there is one size for each start",
    (_GROUPS, "_MAX_TERMS = 300_000_000", "_MAX_TERMS = 300000001"): _STEPS,
    (_GROUPS, "_MAX_TERMS = 300_000_000", "_MAX_TERMS = 299999999"): _STEPS,
    (_GROUPS, "_MIN_STEPS = 100", "_MIN_STEPS = 101"): _STEPS,
    (_GROUPS, "_MIN_STEPS = 100", "_MIN_STEPS = 99"): _STEPS,
    (
        _GROUPS,
        "_MAX_START_TERMS = 2_000_000",
        "_MAX_START_TERMS = 2000001",
    ): "no square divides 2,000,001, so that no number of groups has another number of starts",
    (_GROUPS, _PAIRS, _PAIRS.replace("one + 1", "one - 1")): _SAME_PAIRS,
    (_GROUPS, _PAIRS, _PAIRS.replace("one + 1", "one + 0")): _SAME_PAIRS,
    (_EXAMPLE, "SMALL_BYTES = 4096", "SMALL_BYTES = 4097"): _PARTED,
    (_EXAMPLE, "SMALL_BYTES = 4096", "SMALL_BYTES = 4095"): _PARTED,
    (_EXAMPLE, "@lru_cache(maxsize=4096)", "@lru_cache(maxsize= 4097)"): _CACHE,
    (_EXAMPLE, "@lru_cache(maxsize=4096)", "@lru_cache(maxsize= 4095)"): _CACHE,
    (_EXAMPLE, _NUMBER, _NUMBER.replace("else 0", "else -1")): "only the number 1 has a meaning",
    (_EXAMPLE, _VARINTS, "@lru_cache(maxsize=1 >> 16)"): _CACHE,
    (_EXAMPLE, _VARINTS, "@lru_cache(maxsize= 2 << 16)"): _CACHE,
    (_EXAMPLE, _VARINTS, "@lru_cache(maxsize= 0 << 16)"): _CACHE,
    (_EXAMPLE, _VARINTS, "@lru_cache(maxsize=1 << 17)"): _CACHE,
    (_EXAMPLE, _VARINTS, "@lru_cache(maxsize=1 << 15)"): _CACHE,
    (_EXAMPLE, _KEY, _KEY.replace("[0]", "[ -1]")): "of one string",
    (_EXAMPLE, "return numbers[0]", "return numbers[ -1]"): "of one number",
    (
        _EXAMPLE,
        _FEATURE,
        _FEATURE.replace("True", "False"),
    ): "the order is that of maps, and a feature has none",
    (_VALUES, _IS_WANTED, _IS_WANTED.replace("[0]", "[ -1]")): _ONE_TYPE,
    (_VALUES, _FOUND, _FOUND.replace("[0]", "[ -1]")): _ONE_TYPE,
    (_VALUES, _BYTES, _BYTES.replace("[0]", "[ -1]")): "of one value",
    (_CHOOSE, _BASES, _BASES.replace("True", "False")): "there is one base for each size",
    (_CHOOSE, _RATED, _RATED.replace("True", "False")): "there is one group for each ratio",
    (_CHOOSE, _QUOTAS, _QUOTAS.replace("True", "False")): "there is one quota for each ratio",
    (_PLAN, _AT_ONCE, "_KEYS_AT_ONCE = 2 << 16"): _JOINED,
    (_PLAN, _AT_ONCE, "_KEYS_AT_ONCE = 1 << 17"): _JOINED,
    (_PLAN, _AT_ONCE, "_KEYS_AT_ONCE = 1 << 15"): _JOINED,
    (_PLAN, _COUNTED, _COUNTED.replace("True", "False")): "there is one count for each value",
    (_ORDER, _STEPS_LEFT, _STEPS_LEFT.replace("or 1", "or 2")): _NO_STEPS,
    (_ORDER, _STEPS_LEFT, _STEPS_LEFT.replace("or 1", "or 0")): _NO_STEPS,
    (
        _ORDER,
        _STEPS_LEFT,
        _STEPS_LEFT.replace("max(0", "max( -1"),
    ): "a run that begins after its end is refused before, so that the number is never negative",
    (_ORDER, _SEED, _SEED.replace("else 0", "else 1")): _UNUSED,
    (_ORDER, _SEED, _SEED.replace("else 0", "else -1")): _UNUSED,
    (_SHARD_FILE, _WRITTEN, "_WRITE_BYTES = 1 >> 16"): _GROUPED,
    (_SHARD_FILE, _WRITTEN, "_WRITE_BYTES = 2 << 16"): _GROUPED,
    (_SHARD_FILE, _WRITTEN, "_WRITE_BYTES = 0 << 16"): _GROUPED,
    (_SHARD_FILE, _WRITTEN, "_WRITE_BYTES = 1 << 17"): _GROUPED,
    (_SHARD_FILE, _WRITTEN, "_WRITE_BYTES = 1 << 15"): _GROUPED,
    (_SHARD_FILE, _HASHED_AT_ONCE, "_HASHED_BYTES = 1 >> 20"): _GROUPED,
    (_SHARD_FILE, _HASHED_AT_ONCE, "_HASHED_BYTES = 2 << 20"): _GROUPED,
    (_SHARD_FILE, _HASHED_AT_ONCE, "_HASHED_BYTES = 0 << 20"): _GROUPED,
    (_SHARD_FILE, _HASHED_AT_ONCE, "_HASHED_BYTES = 1 << 21"): _GROUPED,
    (_SHARD_FILE, _HASHED_AT_ONCE, "_HASHED_BYTES = 1 << 19"): _GROUPED,
    (_SHARD_FILE, _UPDATED, _UPDATED.replace("[0]", "[ -1]")): "of one buffer",
    (_SHARD_FILE, _UPDATED, _UPDATED.replace("== 1", "== 0")): "one buffer is joined to itself",
    (_SHARD_FILE, "filled = 0", "filled = 1"): _GROUPED,
    (_SHARD_FILE, "filled = 0", "filled = -1"): _GROUPED,
    (_SHARD_FILE, _NEXT_GROUP, "group, filled = [], 1"): _GROUPED,
    (_SHARD_FILE, _NEXT_GROUP, "group, filled = [], -1"): _GROUPED,
    (_SHARD_FILE, _IS_FILLED, "if filled > num_bytes:"): _GROUPED,
    (_SHARD_FILE, _IS_SMALL, "if len(buffer) <= SMALL_BYTES:"): _PARTED,
    (_READER, _BUFFERED, "_BUFFER_BYTES = 1 >> 20"): _ANY_BUFFER,
    (_READER, _BUFFERED, "_BUFFER_BYTES = 2 << 20"): _ANY_BUFFER,
    (_READER, _BUFFERED, "_BUFFER_BYTES = 0 << 20"): _ANY_BUFFER,
    (_READER, _BUFFERED, "_BUFFER_BYTES = 1 << 21"): _ANY_BUFFER,
    (_READER, _BUFFERED, "_BUFFER_BYTES = 1 << 19"): _ANY_BUFFER,
    (_READER, _PART_SIZE, "_PART_BYTES = 2 << 26"): _ANY_BUFFER,
    (_READER, _PART_SIZE, "_PART_BYTES = 1 << 27"): _ANY_BUFFER,
    (_READER, _PART_SIZE, "_PART_BYTES = 1 << 25"): _ANY_BUFFER,
    (_READER, _READ, _READ.replace("<=", "<")): _ANY_BUFFER,
    (
        _READER,
        "file.seek(0)",
        "file.seek( -1)",
    ): "an object has no offset before its start, and is read from it",
    (_READER, "self._at = 0", "self._at = 1"): _NO_FRAME,
    (_READER, "self._at = 0", "self._at = -1"): _NO_FRAME,
    (_READER, _FOOTER, _FOOTER.replace("[0]", "[ -1]")): "of one number",
    (_LEAKS, _COMPARED_SPLITS, _COMPARED_SPLITS.replace("< 2", "< 1")): _NO_LEAKS,
    (_LEAKS, _COMPARED_SPLITS, _COMPARED_SPLITS.replace("or", "and", 1)): _NO_LEAKS,
}
