"""Provenance: what a record needs to be repeated."""

import json
import re

from dismix import provenance


def test_record_is_plain_and_complete(monkeypatch):
    monkeypatch.delenv("DISMIX_COMMIT", raising=False)
    record = provenance.provenance()
    assert json.loads(json.dumps(record)) == record
    assert record["versions"]["torch"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", record["date"])
    assert record["hardware"]


def test_commit_can_be_told_where_there_is_no_git(monkeypatch):
    monkeypatch.setenv("DISMIX_COMMIT", "abc123")
    assert provenance.provenance()["commit"] == "abc123"


def test_missing_git_is_no_error(monkeypatch):
    def absent(*_args, **_kwargs):
        raise OSError("no git")

    monkeypatch.setattr(provenance.subprocess, "run", absent)
    assert provenance.commit() == ""
