"""Forty runs killed five times at random end with the records of an undisturbed study."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bench_kill.py"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.name == "nt", reason="kills by signal")
def test_forty_runs_killed_five_times_end_with_the_same_records():
    command = [sys.executable, str(SCRIPT), "--kills", "5", "--seed", str(os.getpid())]
    found = subprocess.run(command, text=True, capture_output=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    outcome = json.loads(found.stdout)
    assert outcome["runs"] >= 40
    assert len(outcome["kills"]) == 5
    assert outcome["same_ids"]
    assert outcome["different"] == outcome["finished_twice"] == []
    assert outcome["started_again"] <= 5
