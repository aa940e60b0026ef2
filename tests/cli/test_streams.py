"""Output that nobody reads, and letters that the reader's encoding lacks."""

import io
import os
import subprocess
import sys

import pytest
import typer

from dismix.cli.streams import write_any_letter


@pytest.mark.parametrize("words", [("--version",), ("doctor", "--json")])
def test_a_reader_that_has_gone_is_no_mistake(words):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "dismix", *words]
    left = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (left.returncode, left.stderr) == (0, b"")


def test_no_letter_stops_a_command_and_no_number_loses_its_sign(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    write_any_letter()
    typer.echo("gain \N{MINUS SIGN}0.020 of knöchel \N{RIGHTWARDS ARROW} 膝 a\udcff.png")
    sys.stdout.flush()
    assert written.getvalue() == b"gain -0.020 of kn\xf6chel -> \\u819d a\xff.png" + (
        os.linesep.encode()
    )
