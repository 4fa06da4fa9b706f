import sys

import pytest

from gaflow.progress import is_watched, reporting, silent, within


def test_a_function_is_told_what_is_done_and_how_much_there_is():
    reports = []
    with reporting(lambda *n: reports.append(n), 3, "text") as report:
        report(0.5)
        report(3)
    assert reports == [(0.5, 3), (3, 3)]


def test_nobody_is_told_unless_asked(capsys):
    with reporting(False, 3, "text") as report:
        report(1)
    assert report is silent
    assert capsys.readouterr() == ("", "")


def test_a_bar_counts_parts_and_ends_where_the_work_does(capsys):
    with reporting(True, 2, "method") as report:
        for tenth in range(1, 21):
            report(tenth * 0.1)
        report(2)
    out, err = capsys.readouterr()
    assert out == ""
    assert "2/2" in err
    assert "method" in err
    assert "00000" not in err  # the digits of a sum of parts


def test_a_bar_of_work_that_stops_says_how_far_it_came(capsys):
    def stop():
        with reporting(True, 1, "text") as report:
            report(1 / 3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert "0.33/1" in capsys.readouterr().err


def test_parts_of_a_piece_are_placed_in_the_whole():
    reports = []
    report = within(reports.append, 4, 2)
    for part in (0.25, 1):
        report(part)
    assert reports == [4.5, 6]


def watch(monkeypatch):
    """Make stderr a terminal."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_without_a_wish_nobody_is_told_in_a_pipe():
    assert not is_watched()
    with reporting(None, 3, "text") as report:
        assert report is silent


def test_without_a_wish_a_terminal_shows_nothing_of_short_work(capsys, monkeypatch):
    watch(monkeypatch)
    assert is_watched()
    with reporting(None, 2, "text", advice=lambda seconds: "never") as report:
        report(1)
        report(2)
    assert capsys.readouterr() == ("", "")


def test_without_a_wish_a_terminal_shows_a_bar_of_long_work_and_one_line_of_advice(capsys, monkeypatch):
    watch(monkeypatch)
    monkeypatch.setattr("gaflow.progress.SECONDS_BEFORE_BAR", 0.0)
    seconds = iter([10.0, 13.0, 13.0, 15.0, 15.0])
    monkeypatch.setattr("gaflow.progress.time.monotonic", lambda: next(seconds))
    estimates = []

    def advice(seconds_in_all):
        estimates.append(seconds_in_all)
        return "cheaper"

    with reporting(None, 10, "text", initial=2, advice=advice) as report:
        report(4)  # takes 3 seconds, and does not count
        report(5)  # one in 2 seconds, and 5 are left
        report(10)
    out, err = capsys.readouterr()
    assert out == ""
    assert "/10" in err
    assert err.count("cheaper") == 1
    assert estimates == [5 + 10]


def test_a_terminal_can_be_silenced(capsys, monkeypatch):
    watch(monkeypatch)
    monkeypatch.setattr("gaflow.progress.SECONDS_BEFORE_BAR", 0.0)
    with reporting(False, 2, "text") as report:
        report(2)
    assert capsys.readouterr() == ("", "")
