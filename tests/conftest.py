"""Tests that take seconds and have quicker siblings are marked slow: `make slow` runs them."""

from __future__ import annotations

import gc
import os
import sys

import pytest

# each worker and each interpreter that a test starts would compile everything anew
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

SLOW = (
    "test_accountants_brute_force.py::test_random_mechanisms_with_a_pure_epsilon",
    "test_accountants_parameters.py::test_absurd_sizes_in_every_term_answer_without_a_warning[1e+155]",
    "test_accountants_parameters.py::test_absurd_sizes_in_every_term_answer_without_a_warning[710.0]",
    "test_accountants_laws.py::test_many_partitions_are_quick[<lambda>1]",
    "test_accountants_laws.py::test_many_partitions_are_quick[<lambda>3]",
    "test_audit_one_run.py::test_a_rule_that_is_fitted_to_the_scores_shows_no_more_than_mu[3.0]",
    "test_follow_the_leader.py::test_bands_err_less_than_the_tree[1000-1]",
    "test_grid.py::test_vectors_near_the_sphere[100]",
    "test_kept.py::test_a_stopped_run_goes_on[9]",
    "test_individual_law.py::test_the_exact_hockey_stick_divergence_is_at_most_delta[0.23304-0.5]",
    "test_individual_law.py::test_the_exact_hockey_stick_divergence_is_at_most_delta[0.54376-0.25]",
    "test_ledger_postgres.py::test_a_killed_session_has_recorded_whatever_it_said[points]",
    "test_report_page.py::test_everyone_can_use_it[1600-light]",
    "test_report_page.py::test_everyone_can_use_it[360-dark]",
    "test_rounding.py::test_a_mean_with_a_public_size_far_from_zero",
    "test_select.py::test_the_number_of_runs_has_its_law[2.5-0.3]",
    "test_sklearn.py::test_scikit_learns_own_checks[PrivateLinearSVC]",
    "test_teachers.py::test_forked_workers_close_their_outputs",
    "test_teachers.py::test_workers_change_nothing[multiprocessing]",
    "test_testing_kit.py::test_the_librarys_own_pass[GaussianSparseVector]",
    "test_touch.py::test_many_rows_are_charged_at_once[10-20-add_remove-1.5-True]",
    "test_truncated_posterior.py::TestExcess::test_of_the_draws[1.0]",
    "test_truncated_posterior.py::TestLaw::test_of_the_coefficient_that_alone_is_known[6]",
)
"""How the names of slow tests end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them; a doctest's own classes are a reader's, not of the module that it stands in."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.dtest is not None:
            item.dtest.globs["__name__"] = "__main__"
        if item.nodeid.endswith(SLOW):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Let the collector pass over what stays until the end: modules and some thousand tests."""
    gc.collect()
    gc.freeze()
