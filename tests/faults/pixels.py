"""Faults that change what a picture shows, or put a box, keypoint or mask beside what it marks."""

BOXES, CROPS = (f"loader/examples/{name}.py" for name in ("boxes", "crops"))
PLACES, MASKS = "prep/imaging/coordinates.py", "prep/imaging/masks.py"
GEOMETRY = "tests/pixels/test_geometry.py"
DECLARED = f"{GEOMETRY}::test_what_was_declared_stays_on_what_it_marked"
CONVERT = "prep/imaging/convert.py"
PILLOW, RULES = "prep/imaging/pillow.py", "prep/imaging/acceptance.py"
IMAGES = "tests/conformance/test_images.py::test_images_and_masks_become_what_they_show_or_are_refused"
CORPUS = "tests/pixels/test_corpus.py"
SHOWN = f"{CORPUS}::test_three_decoders_show_the_picture_of_each_file"
OUTCOMES = f"{CORPUS}::test_every_file_is_kept_converted_skipped_or_rejected_for_its_reason"
BYTES = f"{CORPUS}::test_the_stored_bytes_are_those_of_golden_json"
ANNOTATIONS = "tests/conformance/test_annotations.py::test_annotations_move_with_their_image_or_are_refused"

FAULTS = [
    (
        "EXIF 2 mirrors boxes upside down",
        PLACES,
        "((2, 3, 7, 8), (3, 4, 6, 7))",
        "((3, 7, 8), (2, 3, 4, 6, 7))",
        f"{ANNOTATIONS}[xywh_in_the_file_image,_orientation_2_]",
    ),
    (
        "the corners of a turned box stay exchanged",
        PLACES,
        "found.max(axis=1, keepdims=True)], axis=1)",
        "found.min(axis=1, keepdims=True)], axis=1)",
        f"{ANNOTATIONS}[xywh_in_the_file_image,_orientation_3_]",
    ),
    ("cxcywh takes the center for the corner", PLACES, "[1, 0, -0.5, 0]", "[1, 0, 0, 0]", DECLARED),
    (
        "boxes and keypoints of a mirrored picture stay",
        BOXES,
        "self.ops.where(self.ops.stack(self.turned, 0), size - points, points)",
        "points",
        DECLARED,
    ),
    (
        "boxes and keypoints keep the corner of a crop",
        BOXES,
        "else points) - self._corner",
        "else points)",
        DECLARED,
    ),
    (
        "left and right change places in pictures that are not mirrored",
        BOXES,
        "ops.where(view.turned[0] ^ view.turned[1], exchanged, found)",
        "ops.where(view.turned[0] | True, exchanged, found)",
        f"{GEOMETRY}::test_a_mirrored_picture_exchanges_left_and_right_keypoints",
    ),
    ("random boxes use width for height", CROPS, "box = boxes[first]", "box = boxes[first][::-1]", DECLARED),
    (
        "center crops are off by a tenth",
        CROPS,
        "(sides - box) // 2, box]",
        "(sides - box) // 3, box]",
        "tests/loader/test_images.py::test_images_are_resized_and_cut_as_their_names_say",
    ),
    ("16 bits keep the lower byte", CONVERT, "values >> 8", "values & 255", SHOWN),
    ("alpha is dropped without a count", CONVERT, 'note("alpha over white")', "pass", OUTCOMES),
    ("resized photos get another filter", CONVERT, "Resampling.LANCZOS, red", "Resampling.BOX, red", BYTES),
    ("AVIF of 10 bits is taken for one of 8", PILLOW, "(each >> 5 & 2)", "0", OUTCOMES),
    ("a band after the third is lost", RULES, "if image.num_bands > read:", "if False:", OUTCOMES),
    ("0 is black in 16 bits", CONVERT, "255 - upper if header.is_inverted", "255 - upper if False", SHOWN),
    (
        "0 is black in images of 16 bits",
        CONVERT,
        "_WHITE - values if header.is_inverted",
        "_WHITE - values if False",
        f"{IMAGES}[0_is_white_in_16_bits]",
    ),
    (
        "white is 0 in masks",
        CONVERT,
        "if header.is_inverted:",
        "if False:",
        f"{IMAGES}[mask_where_0_is_white,_8_bits]",
    ),
    ("a negative number is a bright one", CONVERT, "if header.is_signed and", "if False and", OUTCOMES),
    ("overviews are frames", PILLOW, "if not (each[254] & 1", "if not (each[254] & 2", OUTCOMES),
    ("a thumbnail is the picture", PILLOW, "image.seek(full[0])", "image.seek(0)", SHOWN),
    (
        "Pillow's messages are printed",
        PILLOW,
        '"disabled", True)',
        '"disabled", False)',
        "tests/prep/test_images.py::test_messages_of_pillow_which_name_no_file_are_not_printed",
    ),
    ("a quality of JPEG is lost", CONVERT, "quality=options.quality", "quality=75", BYTES),
]
