"""Hooks of MkDocs: pages that are generated, links out of ``docs/``, and Markdown as GitHub reads it."""

from __future__ import annotations

import ast
import html
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "src")]

from commands import command_pages  # noqa: E402

ROOMS = {
    "prep": "Functions and classes that build datasets and maintain them.",
    "loader": "Functions and classes that read datasets in TensorFlow.",
    "schemas": "What both agree on: the manifest, features, and errors.",
}
# Links out of docs/, and the page of the site that has their content.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "SECURITY.md": "security.md",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors that GitHub gives them, which links between the pages use."""
    config.mdx_configs["toc"]["slugify"] = github_anchor
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated."""
    pages = {page: (ROOT / name).read_text().replace("](docs/", "](") for name, page in PAGES.items()}
    pages["examples.md"] = examples_page()
    pages["dockerfile.md"] = dockerfiles_page()
    pages["cli.md"] = command_pages()
    pages |= {f"{room}.md": room_page(room, text) for room, text in ROOMS.items()}
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Redirect links out of ``docs/``, and separate lists from what precedes them."""
    # what tests/pages.py reads
    markdown = re.sub(r"^<!-- (?:run|check|no-run)\b.*? -->$", "", markdown, flags=re.M | re.S)
    markdown = re.sub(r"^( *```\w+) no-run$", r"\1", markdown, flags=re.M)
    markdown = re.sub(
        r"\]\((?:\.\./)?(examples[^)]*|docker/[a-z]+.Dockerfile|[A-Z]+\.md)\)", _target, markdown
    )
    # GitHub reads \| in code as |, in a table
    markdown = re.sub(r"`([^`\n]*\\\|[^`\n]*)`", _code_in_table, markdown)
    return _with_blank_lines(markdown)


def github_anchor(text: str, separator: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", separator)


def examples_page() -> str:
    """Return a page with every program in ``examples/``."""
    parts = ["# Examples", "Programs that the tests run."]
    for path in sorted((ROOT / "examples").glob("*.py")):
        parts += [f"## {path.name}", f"```python\n{path.read_text().rstrip()}\n```"]
    return "\n\n".join(parts)


def dockerfiles_page() -> str:
    """Return a page with the files of the containers."""
    parts = ["# Containers"]
    for path in sorted((ROOT / "docker").glob("*.Dockerfile")):
        parts += [f"## {path.name}", f"```dockerfile\n{path.read_text().rstrip()}\n```"]
    return "\n\n".join(parts)


def room_page(room: str, text: str) -> str:
    """Return a page with the docstrings of all public names of a room."""
    # read rather than imported, because the loader would import TensorFlow
    stub = ROOT / room / "__init__.pyi"
    if stub.exists():
        imports = (node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom))
        names = [alias.name for node in imports for alias in node.names]
    else:
        module = ast.parse((ROOT / room / "__init__.py").read_text())
        imports = (node for node in ast.walk(module) if isinstance(node, ast.ImportFrom))
        # a name that is imported under its own name is public
        names = [
            each.name
            for node in imports
            for each in node.names
            if each.asname == each.name and node.module != f"tfshards.{room}"
        ]
    # a function may have the name of its module
    paths = (f"{name}.{name}" if (ROOT / room / f"{name}.py").exists() else name for name in names)
    return (
        "\n\n".join([f"# tfshards.{room}", text, *(f"::: tfshards.{room}.{path}" for path in paths)]) + "\n"
    )


def _target(link: re.Match[str]) -> str:
    path = link[1].rstrip("/")
    if path.startswith("examples"):
        name = path.partition("/")[2]
        return f"](examples.md#{github_anchor(name, '-')})" if name else "](examples.md)"
    return f"]({PAGES.get(path, 'dockerfile.md')})"


def _code_in_table(code: re.Match[str]) -> str:
    return f"<code>{html.escape(code[1]).replace(chr(92) + '|', '&#124;')}</code>"


def _with_blank_lines(markdown: str) -> str:
    """Return Markdown with a blank line before lists and tables, which GitHub does not need."""
    lines: list[str] = []
    is_code = False
    for line in markdown.splitlines():
        is_code ^= line.lstrip().startswith("```")
        last = lines[-1] if lines else ""
        kinds = ("- ", "|")
        starts = next((kind for kind in kinds if line.startswith(kind)), None)
        is_continued = starts is not None and last.startswith(starts)
        is_list = last.startswith(("- ", "  "))
        if starts and last and not is_code and not is_continued and not (starts == "- " and is_list):
            lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"
