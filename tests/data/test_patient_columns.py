import pandas as pd
import pytest

from dismix.data.patient_columns import patient_column, unused_patients


def table(**columns: list[object]) -> pd.DataFrame:
    return pd.DataFrame({"image": list("abcd"), "split": "train", **columns})


@pytest.mark.parametrize(
    "name",
    [
        "patient", "PATIENT", "patient_id", "PatientID", "patientid", "Patient-Nr.", "Patients",
        "ID of patient", "subject", "subj_id", "case", "CaseNumber", "study", "StudyInstanceUID",
        "person", "MRN", "pid", "participant id", "exam_no",
    ],
)  # fmt: skip
def test_columns_that_name_patients(name: str) -> None:
    assert patient_column(table(**{name: ["p", "p", "q", "r"]})) == name


@pytest.mark.parametrize(
    "name",
    [
        "patient_age",
        "case_control",
        "id",
        "site",
        "study date",
        "persona",
        "grade",
        "annotator_pat",
    ],
)
def test_columns_about_other_things(name: str) -> None:
    assert patient_column(table(**{name: ["p", "p", "q", "r"]})) is None


@pytest.mark.parametrize(
    "values",
    [["p", "q", "r", "s"], ["p"] * 4, ["p", None, None, "q"], [None] * 4, ["p", "", "", "q"]],
)
def test_a_column_that_groups_nothing_or_all_is_no_use(values: list[object]) -> None:
    assert patient_column(table(patient=values)) is None


def test_the_surest_of_several_and_none_beside_groups() -> None:
    repeated: list[object] = [1, 1, 2, 3]
    both = table(study=repeated, patient_id=repeated)
    assert patient_column(both) == "patient_id"
    assert patient_column(both.assign(patient_id=range(4))) == "study"
    assert patient_column(both.assign(group=[None] * 4)) == "patient_id"
    assert patient_column(both.assign(group=["x", None, None, None])) is None
    assert unused_patients(both.assign(group="x")) == ""


def test_patients_in_several_splits_are_counted() -> None:
    apart = table(mrn=[1, 1, 2, 2]).assign(split=["train", "test", "val", "train"])
    assert unused_patients(apart).endswith("no group: 2 of 2 are in several splits")
    whole = apart.assign(split=["train", "train", "test", "test"])
    assert unused_patients(whole).endswith("0 of 2 are in several splits")
