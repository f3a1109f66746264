"""The tables of the documentation: made again byte for byte, and none whose origin nobody says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import tables  # noqa: E402


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if table.slow else name
        for name, table in tables.TABLES.items()
    ],
)
def test_a_table_is_made_again_byte_for_byte(name: str) -> None:
    assert tables.difference(name) == []


@pytest.mark.parametrize("name", [name for name, table in tables.TABLES.items() if table.slow])
def test_a_slow_table_stands_between_its_markers(name: str) -> None:
    _, table, _ = tables.place(name)
    assert table.startswith("| ")
    assert len(table.split("\n")) > 2


def test_the_pages_say_where_every_table_with_figures_comes_from() -> None:
    unsaid = [line for line in tables.listed() if "NOBODY" in line]
    assert unsaid == []
    # and what is said is of tables that are there
    found = [(page, header) for page, header, marked in tables.with_figures() if not marked]
    for each in tables.MEASURED:
        assert any(page == each.page and h.startswith(each.header) for page, h in found), each


def test_a_changed_figure_is_found_and_the_command_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "docs" / "sessions.md"
    page.parent.mkdir()
    text = (ROOT / "docs" / "sessions.md").read_text("utf-8")
    page.write_text(text.replace("| 533 |", "| 534 |"), "utf-8")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check", "steps_in_a_session"])
    with pytest.raises(SystemExit) as stop:
        tables.main()
    assert stop.value.code == 1
    assert "| 534 |" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["tables.py", "--write", "steps_in_a_session"])
    with pytest.raises(SystemExit):
        tables.main()
    assert page.read_text("utf-8") == text
    page.write_text(text.replace("<!-- table steps_in_a_session -->", ""), "utf-8")
    with pytest.raises(SystemExit, match=r"sessions\.md must have"):
        tables.place("steps_in_a_session")


def test_the_command_lists_and_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tables.py", "--list"])
    tables.main()
    assert "steps_in_a_session, made by this command" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["tables.py", "nothing"])
    with pytest.raises(SystemExit) as stop:
        tables.main()
    assert stop.value.code == 2
    assert "no table 'nothing'" in capsys.readouterr().err
