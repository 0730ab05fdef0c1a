# ruff: noqa: E501 -- lines of other files
"""Which tests run over the mutants of which module, and the mutants that no test can find."""

# Imported once, before a process is forked for each mutant; none of them imports tfshards.
IMPORTS = ("pytest", "hypothesis", "numpy", "PIL.Image", "pyarrow.parquet", "google_crc32c", "tensorflow")

_PREP = {
    "planning/options.py": "shard_counts options golden",
    "planning/balance.py": "plan",
    "planning/splits.py": "splits",
    "planning/group_splits.py": "group_splits",
    "planning/leaks.py": "leaks",
    # the first ones find most of them
    "planning/plan.py": "golden plan class_numbers group_splits captions build",
    "records/example.py": "example relabel merge",
    "records/values.py": "duplicates verify adopt",
    "records/shard_file.py": "shard_file golden",
    "records/frames.py": "reader tfrecord shard_file",
}
_LOADER = {
    "order/epoch.py": "order",
    "order/assignment.py": "assign",
    "order/population.py": "population",
    "order/plan.py": "positions choose plan",
}
_SCHEMAS = {"digests.py": "digests", "index.py": "index"}

# The files of tests of a module, run in this order until one fails.
TESTS: dict[str, tuple[str, ...]] = {
    f"{room}/{module}": tuple(f"tests/{room}/test_{n}.py" for n in names.split())
    for room, modules in (("prep", _PREP), ("loader", _LOADER), ("schemas", _SCHEMAS))
    for module, names in modules.items()
}

# Lines of modules of which some changes cannot be found, and why.
EQUIVALENT: dict[str, dict[str, str]] = {
    "prep/records/frames.py": {
        "_BUFFER_BYTES = 1 << 20": "the same bytes are read with buffers and in parts of any size",
        "self._at = 0": "no frame begins there, and the first one is found by a seek",
        "if FOOTER.unpack(footer)[0] == checksum:": "of one number",
    },
    "schemas/index.py": {
        "return np.frombuffer(data, dtype=_DTYPE).astype(np.int64, copy=False)": "a copy has the same values",
        "sound = match.end() if match else 0": "the pattern is a repetition, which matches any text",
        'line, found = text.count("\\n", 0, sound) + 1, text[sound:].split("\\n", 1)[0][:40]': "no sound text starts with a newline",
        'rows = np.fromstring(text, dtype=np.int64, sep=" ").reshape(-1, 2)': "NumPy infers the length from any negative number",
    },
    "schemas/digests.py": {"entries = np.arange(256, dtype=np.uint32)": "the table is read by a byte"},
    "prep/planning/balance.py": {
        "lightest = [(0, shard) for shard in range(num_shards)]": "all shards start with the same number of bytes, and only comparisons of them count"
    },
    "loader/order/assignment.py": {
        "num_shards: int = 1": "the one use counts no shard as one",
        "return [divisor for divisor in range(1, number + 1) if number % divisor == 0]": "number + 1 never divides number",
        "return next(divisor for divisor in range(min(number, most), 0, -1) if number % divisor == 0)": "1 divides each number",
    },
    "loader/order/population.py": {
        "return int(self.pattern.shape[0])": "the first axis of a vector is also its last one",
        "return int(self.members.shape[0])": "the first axis of a vector is also its last one",
    },
    "prep/planning/group_splits.py": {
        "_MAX_TERMS = 300_000_000": "a limit of the time: one step of a long search more or less",
        "_MIN_STEPS = 100": "a limit of the time: one step of a long search more or less",
        "_MAX_START_TERMS = 2_000_000": "no square divides 2,000,001, so that no number of groups has another number of starts",
    },
    "prep/records/example.py": {"SMALL_BYTES = 4096": "the bytes are the same in any number of parts"},
    "prep/records/values.py": {
        "if values and not isinstance(values[0], wanted):": "all values of a list have one type",
        'return f"is a list of {type(values[0]).__name__} instead of {wanted.__name__}"': "all values of a list have one type",
        'length = len(cast("list[bytes]", values)[0])': "of one value",
    },
    "loader/order/plan.py": {
        "return max(0, ((self.epochs or 1) - self.begin.epoch) * steps - self.begin.step)": "without an end, and with steps, the line before has returned",
        "seed=order_seed(shuffle.seed, source.manifest.build_id) if shuffle is not None else 0,": "the stored order has no runs, which alone need the seed",
    },
    "prep/records/shard_file.py": {
        "_WRITE_BYTES = 1 << 16": "groups of any size have the same bytes",
        "_HASHED_BYTES = 1 << 20": "groups of any size have the same bytes",
        'self._digest.update(group[0] if len(group) == 1 else b"".join(group))': "of one buffer",
        "filled = 0": "groups of any size have the same bytes",
        "group, filled = [], 0": "groups of any size have the same bytes",
        "if filled >= num_bytes:": "groups of any size have the same bytes",
        "if len(buffer) < SMALL_BYTES:": "the bytes are the same in any number of parts",
    },
    "prep/planning/leaks.py": {
        "if len(splits) < 2 or isinstance(listing.keys, RowKeys):": "within one split, and among numbers of rows, no rule finds any"
    },
}
