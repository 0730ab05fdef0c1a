"""Faults of the command line that a user or a script would suffer from."""

MAIN, PARSER, FAILURE, CONSOLE = (
    "prep/cli/main.py",
    "prep/cli/parser.py",
    "prep/cli/failure.py",
    "prep/progress/console.py",
)
LINES, REFUSALS, STREAMS, CONFIG = (
    f"tests/surface/test_{name}.py" for name in ("lines", "refusals", "streams", "config")
)
OWNED = f"{REFUSALS}::test_nothing_is_written_into_a_folder_of_somebody_else_or_an_input"

FAULTS = [
    (
        "verify and diff exit with 0 for what they find",
        MAIN,
        "and not result else 0",
        "and False else 0",
        f"{REFUSALS}::test_verify_reports_damage_on_standard_output_with_status_1",
    ),
    (
        "diff exits with 0 where datasets differ",
        "prep/deriving/diff.py",
        "        return self.is_same\n",
        "        return True\n",
        f"{REFUSALS}::test_differences_are_results_with_status_1",
    ),
    (
        "an error is printed to standard output",
        MAIN,
        'LOGGER.error(f"tfshards: {failure.message}',
        'print(f"tfshards: {failure.message}',
        f"{LINES}::test_a_wrong_value_is_refused_by_name",
    ),
    (
        "a wrong command line exits with 1",
        FAILURE,
        '(OptionsError, "options", 2)',
        '(OptionsError, "options", 1)',
        f"{LINES}::test_a_path_that_is_missing_empty_or_not_expanded_is_refused",
    ),
    (
        "a build writes into a folder of somebody else",
        "prep/building/state.py",
        "    if state.other and not",
        "    if False and not",
        OWNED,
    ),
    (
        "a dataset is built inside its input",
        "prep/building/output.py",
        "if location is not None and folder.is_inside(location):",
        "if False:",
        OWNED,
    ),
    (
        "an export writes into a folder of somebody else",
        "prep/exporting/export.py",
        "if not is_own and {*os.listdir(directory)} - {LOCK_NAME}:",
        "if False:",
        OWNED,
    ),
    (
        "a file of options replaces flags",
        PARSER,
        "{**read_config(self, path, self._ignored), **values}",
        "{**values, **read_config(self, path, self._ignored)}",
        f"{CONFIG}::test_a_flag_replaces_what_the_file_says_of_the_same",
    ),
    (
        "errors lose their code in JSON",
        FAILURE,
        "code = self.code or self.kind",
        "code = self.kind",
        f"{REFUSALS}::test_a_refusal_has_a_code_and_names_what_is_wrong",
    ),
    (
        "a result of several values is printed as one",
        MAIN,
        "isinstance(result, (list, Iterator))",
        "isinstance(result, Iterator)",
        f"{LINES}::test_a_list_is_printed_one_a_line",
    ),
    (
        "no hint for a misspelled flag",
        PARSER,
        "unknown[1] or unknown[2]",
        'unknown[1] or ""',
        f"{LINES}::test_a_misspelled_verb_or_flag_is_refused_with_a_hint",
    ),
    (
        "an interrupt exits with 1",
        MAIN,
        "else 130",
        "else 1",
        f"{STREAMS}::test_an_interrupted_build_has_the_status_of_its_signal_and_resumes",
    ),
    (
        "a control character is printed raw",
        "schemas/errors.py",
        "char if char.isprintable() else",
        "char if char else",
        f"{LINES}::test_a_path_that_is_missing_empty_or_not_expanded_is_refused",
    ),
    (
        "a link out of the folder of images is followed",
        "prep/sources/tree.py",
        "if not self.follow_links and entry.is_symlink() and self._leads_out(entry.path):",
        "if False:",
        f"{REFUSALS}::test_links_lead_out_of_a_folder_only_on_request",
    ),
    (
        "an empty path is the working directory",
        "prep/cli/derive.py",
        "    if not text:\n        raise argparse",
        "    if False:\n        raise argparse",
        f"{LINES}::test_a_path_that_is_missing_empty_or_not_expanded_is_refused",
    ),
    (
        "quiet drops warnings",
        CONSOLE,
        "logging.WARNING if quiet",
        "logging.ERROR if quiet",
        f"{STREAMS}::test_quiet_leaves_warnings_and_verbose_adds_details",
    ),
    (
        "an error that is printed as JSON is not printed for people",
        MAIN,
        'LOGGER.error(f"tfshards: {failure.message}',
        'prints_json or LOGGER.error(f"tfshards: {failure.message}',
        f"{REFUSALS}::test_a_refusal_has_a_code_and_names_what_is_wrong",
    ),
    (
        "a full disk at standard output is a success",
        MAIN,
        '        raise OSError(error.errno, error.strerror, "standard output") from None',
        "        return",
        f"{STREAMS}::test_a_full_disk_at_standard_output_is_an_error",
    ),
    (
        "a plan shows shards in the wrong order",
        "prep/planning/plan.py",
        '"examples_per_shard": [*map(len, layout)],',
        '"examples_per_shard": sorted(map(len, layout)),',
        "tests/surface/test_refusals.py::test_a_plan_writes_nothing_but_fits_the_build",
    ),
]
