"""Progress bars go to stderr and follow the calls."""

import time

from dismix.progress import LINE_EVERY, bar


def test_bar_shows_stage_and_counts_on_stderr(capsys):
    with bar() as progress:
        progress("reading | fast", 1, 4)
        progress("reading | slow", 4, 4)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "slow" in captured.err
    assert "4/4" in captured.err


def test_counts_and_time_stay_whole_on_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with bar() as progress:
        progress(
            "training | loss 1.37 (seen 0.2x1.55 reconstruct 20x0.0141)  51 images/s", 660, 660
        )
    shown = capsys.readouterr().err
    assert "660/660 0:00:00" in shown
    assert "━" * 6 in shown
    assert "training | loss 1.37" in shown


def test_names_with_brackets_are_shown_as_they_are(capsys):
    with bar() as progress:
        progress("benchmark | site[/b] [red] seed 0", 1, 2)
    assert "site[/b] [red] seed 0" in capsys.readouterr().err


def test_quiet_bar_draws_nothing(capsys):
    with bar(quiet=True) as progress:
        progress("reading", 1, 1)
    assert capsys.readouterr().err == ""


def test_bar_that_was_never_moved_leaves_no_line(capsys):
    with bar():
        pass
    assert capsys.readouterr().err == ""


def test_a_log_gets_a_line_every_half_minute(capsys, monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with bar() as progress:
        for step in range(1, 9):
            now += LINE_EVERY / 4
            progress(f"training | loss {step}", step, 8)
        # Before the bars are drawn, which a log sees only at the end.
        assert capsys.readouterr().err.splitlines() == [
            "training | loss 4  4/8", "training | loss 8  8/8",
        ]  # fmt: skip
    assert "8/8" in capsys.readouterr().err
