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

# The tests of a module, run in this order until one fails.
TESTS: dict[str, tuple[str, ...]] = {
    "prep/planning/shard_counts.py": ("tests/prep/test_shard_counts.py",),
    "prep/records/frames.py": ("tests/prep/test_tfrecord.py",),
    "schemas/splitmix.py": ("tests/schemas/test_digests.py",),
    "schemas/index.py": ("tests/schemas/test_index.py",),
    "schemas/labels.py": ("tests/schemas/test_labels.py",),
    "prep/planning/balance.py": ("tests/prep/test_plan.py",),
    "prep/planning/splits.py": ("tests/prep/test_splits.py",),
    "loader/order/random_bits.py": _BITS,
    "loader/order/epoch.py": _EPOCH,
    "loader/order/assignment.py": ("tests/loader/test_assign.py",),
    "loader/order/population.py": ("tests/loader/test_population.py",),
    "loader/order/continuation.py": _RESUMED,
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

# (module, line before, line after): the reason
EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("prep/records/frames.py", "@lru_cache(maxsize=1024)", "@lru_cache(maxsize= 1025)"): _CACHE,
    ("prep/records/frames.py", "@lru_cache(maxsize=1024)", "@lru_cache(maxsize= 1023)"): _CACHE,
    (
        "schemas/labels.py",
        "return np.frombuffer(data, dtype=_DTYPE).astype(np.int64, copy=False)",
        "return np.frombuffer(data, dtype=_DTYPE).astype(np.int64, copy=True)",
    ): "a copy has the same values",
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
}
