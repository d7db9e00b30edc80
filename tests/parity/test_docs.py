"""The documentation's examples, run, and its links and blocks of code, checked."""

import asyncio
import doctest
import json
import re

import pytest

from tests.async_source import failures, notebook_cells, run_source

SMALLEST = {"text-contract.md": 10, "python-api.md": 15}  # examples, at least


@pytest.mark.parametrize("name", SMALLEST)
def test_the_worked_examples_run_as_written(repo_root, default_model, name):
    text = (repo_root / "docs" / name).read_text(encoding="utf-8")
    # A code fence would be read as expected output of the example before it.
    text = text.replace("```pycon", "").replace("```", "")
    examples = doctest.DocTestParser().get_examples(text, name)
    assert len(examples) >= SMALLEST[name]
    assert failures(examples, {"MODEL": default_model}) == []


def test_the_notebook_runs_from_the_first_cell_to_the_last(repo_root, default_model):
    cells = notebook_cells(repo_root / "docs" / "notebook.ipynb", MODEL=str(default_model), WHEEL="")

    async def run():
        names = {}
        return {name: await run_source(source, names) for name, source in cells}

    printed = asyncio.run(run())
    assert "The capital of France is Paris.\n[stop; 7 tokens" in printed["chat"]
    assert printed["client"].startswith("The capital of France is Paris.\n'The' [('The', -")
    assert printed["client-stream"] == "The capital of France is Paris."
    assert printed["prompt"].count("<|im_end|> ") == 2
    assert "' Paris'" in printed["logits"].splitlines()[0]


def test_the_notebook_is_kept_without_results(repo_root):
    notebook = json.loads((repo_root / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in cells] == [([], None)] * len(cells)


def test_every_block_of_code_is_closed_and_every_link_leads_somewhere(repo_root):
    """Drawings between single backticks were shown as running text."""
    faults = []
    for page in [*repo_root.glob("*.md"), *repo_root.glob("docs/*.md")]:
        text = page.read_text(encoding="utf-8")
        pieces = re.split(r"^```\w*$", text, flags=re.MULTILINE)
        faults += [f"{page.name}: a block of code is not closed"] if len(pieces) % 2 == 0 else []
        prose = "".join(pieces[::2])
        faults += [
            f"{page.name}: a line of backticks alone: {line}" for line in re.findall(r"^`+$", prose, re.MULTILINE)
        ]
        for address, place in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose):
            target = page.parent / address if address else page
            if not target.exists():
                faults.append(f"{page.name}: {address} is not there")
            elif place and place not in headings(target):
                faults.append(f"{page.name}: {address} has no heading {place}")
    assert faults == []


def headings(page):
    """The headings of a page, as links name them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_an_example_that_prints_something_else_is_found():
    examples = doctest.DocTestParser().get_examples(">>> 1 + 1\n3\n>>> x = 2\n>>> x\n2\n")
    assert failures(examples, {}) == ["line 1: 1 + 1\nprinted '2\\n'"]
