"""The documentation's examples, run."""

import doctest


def test_the_worked_example_of_the_text_contract_runs_as_written(repo_root, default_model):
    text = (repo_root / "docs" / "text-contract.md").read_text(encoding="utf-8")
    # A code fence would be read as expected output of the example before it.
    text = text.replace("```pycon", "").replace("```", "")
    examples = doctest.DocTestParser().get_doctest(text, {"MODEL": default_model}, "text-contract.md", None, 0)
    assert len(examples.examples) >= 10
    report = []
    results = doctest.DocTestRunner(verbose=False).run(examples, out=report.append)
    assert results.failed == 0, "".join(report)
