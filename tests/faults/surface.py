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
        "verify exits with 0 for a damaged dataset",
        "prep/cli/verify.py",
        "    return Result.of(report, 0 if report else 1)\n\n\ndef _repair",
        "    return Result.of(report)\n\n\ndef _repair",
        f"{REFUSALS}::test_verify_reports_damage_on_standard_output_with_status_1",
    ),
    (
        "a repair that leaves damage exits with 0",
        "prep/cli/verify.py",
        "report = repair(args.dataset)\n    return Result.of(report, 0 if report else 1)",
        "report = repair(args.dataset)\n    return Result.of(report)",
        f"{REFUSALS}::test_a_repair_rebuilds_what_follows_and_prints_the_command_for_the_rest",
    ),
    (
        "diff exits with 0 where datasets differ",
        "prep/cli/show.py",
        "0 if found.is_same else 1",
        "0",
        f"{REFUSALS}::test_differences_and_findings_are_results_with_status_1",
    ),
    (
        "an error is printed to standard output",
        MAIN,
        "            LOGGER.error(str(failure))\n            return failure.status",
        "            print(failure)\n            return failure.status",
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
        'raise OptionsError("output-in-input", folder=folder, location=location)',
        "pass",
        OWNED,
    ),
    (
        "an export writes into a folder of somebody else",
        "prep/exporting/export.py",
        'raise InputError("export-not-empty", directory=directory)',
        "pass",
        OWNED,
    ),
    (
        "the file of options wins over a flag",
        "prep/cli/option_files.py",
        "if key in keys and key not in replaced}",
        "if key in keys}",
        f"{CONFIG}::test_a_flag_replaces_what_the_file_says_of_the_same",
    ),
    (
        "a mistake in a file of options is blamed on the command line",
        "prep/cli/option_files.py",
        'return f"{message} ({flag} is from {origin})"',
        "return message",
        f"{CONFIG}::test_every_flag_of_a_verb_is_a_key_and_a_wrong_value_names_file_and_flag",
    ),
    (
        "errors lose their code in JSON",
        FAILURE,
        '            "code": self.code or self.kind,\n',
        "",
        f"{REFUSALS}::test_a_refusal_has_a_code_and_names_what_is_wrong",
    ),
    (
        "the JSON of prune loses the bytes",
        "prep/cli/generations.py",
        ', "num_bytes": total}',
        "}",
        f"{LINES}::test_a_right_line_prints_its_result_as_text_and_as_json",
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
        MAIN,
        'raise OptionsError("path-empty", name=name)',
        "pass",
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
        "            LOGGER.error(str(failure))\n            return failure.status",
        "            as_json or LOGGER.error(str(failure))\n            return failure.status",
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
        "tests/surface/test_plans.py::test_a_plan_writes_nothing_but_fits_the_build",
    ),
]
