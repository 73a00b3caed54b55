"""How findings read."""

from components.findings import Finding, Invalid, Severity, errors, nearest


def test_a_finding_is_one_line_of_path_reason_and_fix():
    assert str(Finding("nodes.max", "2 is too few", "Raise it")) == "nodes.max: 2 is too few. Raise it"
    assert str(Finding("nodes.max", "2 is too few")) == "nodes.max: 2 is too few"


def test_a_finding_is_one_line_of_plain_text_whatever_it_repeats():
    """Line ends would make it two, and terminals would obey the rest."""
    finding = Finding("tags.a\nb", "'\x1b[2J' is not ün", "Write\tit")
    assert str(finding) == r"tags.a\nb: '\x1b[2J' is not ün. Write\tit"


def test_an_error_carries_all_findings_a_line_each():
    findings = [Finding("a", "b"), Finding("c", "d", "e")]
    assert str(Invalid(findings)) == "a: b\nc: d. e"
    assert Invalid(findings).findings == tuple(findings)


def test_warnings_refuse_nothing():
    warning = Finding("a", "b", severity=Severity.WARNING)
    assert errors([warning, Finding("c", "d")]) == [Finding("c", "d")]


def test_nearest_names_what_was_meant_or_what_there_is():
    assert nearest("desierd", ["desired", "min", "max"]) == "Did you mean desired?"
    assert nearest("zzz", ["b", "a"]) == "Known: a, b"
    assert nearest("zzz", [f"k{n:02}" for n in range(12)]).endswith("k09, …")
