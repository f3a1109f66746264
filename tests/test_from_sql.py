"""SQL: the plans of the methods, the answers of a database, and refusals with their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import adaptive_dp as dp

pytest.importorskip("sqlglot")

COLUMNS: dict[str, Any] = {
    "health": ["excellent", "good", "poor"],
    "age": (0, 100),
    "visits": (0, 20),
    "income": None,
    "member": bool,
    "town": str,
    "card": ["blue", "red"],
}
Outputs = Callable[[Any], dict[str, Any]]


def people() -> Any:
    return dp.dataset("people", columns=COLUMNS, unit="id", rows_per_unit=3)


SAME: dict[str, Outputs] = {
    "SELECT COUNT(*) FROM people": lambda t: {"count": t.count()},
    "SELECT SUM(age) AS s FROM people": lambda t: {"s": t["age"].sum().release()},
    "SELECT AVG(age) AS a FROM people": lambda t: {"a": t["age"].average()},
    "SELECT COUNT(age) AS n FROM people": lambda t: {
        "n": t.filter(t["age"].is_present()).count().release()
    },
    "SELECT COUNT(DISTINCT id) n FROM people p WHERE p.age > 3": lambda t: {
        "n": t.filter(t["age"] > 3).count_distinct().release()
    },
    "SELECT MEDIAN(age) m, QUANTILE(age, 0.9) q, MAX(age) x FROM people": lambda t: {
        "m": t["age"].median().release(dp.QuantileExponential()),
        "q": t["age"].quantile(0.9).release(dp.QuantileExponential()),
        "x": t["age"].max().release(dp.QuantileExponential()),
    },
    "SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY age) AS q FROM people": lambda t: {
        "q": t["age"].quantile(0.25).release(dp.QuantileExponential())
    },
    "SELECT STDDEV(age) AS s, VARIANCE(visits) AS v FROM people": lambda t: {
        "s": t["age"].std(),
        "v": t["visits"].variance(),
    },
    """SELECT health, COUNT(*) AS n, AVG(visits) AS v, SUM(age) AS s
       FROM people WHERE age >= 18 GROUP BY health""": lambda t: (
        t.filter(t["age"] >= 18)
        .group_by("health")
        .agg(n=dp.count(), v=dp.average("visits"), s=dp.sum("age"))
    ),
    "SELECT age >= 65 AS old, COUNT(*) AS n FROM people GROUP BY old, health": lambda t: (
        t.with_columns(old=t["age"] >= 65).group_by("old", "health").agg(n=dp.count())
    ),
    "SELECT SUM(LEAST(GREATEST(income, 0), 9)) s FROM people": lambda t: {
        "s": t["income"].clip(0, 9).sum().release()
    },
    """SELECT COUNT(*) n FROM people WHERE (age BETWEEN 18 AND 65 OR NOT town IN ('A', 'B'))
       AND income IS NOT NULL AND member""": lambda t: {
        "n": t.filter(
            (((t["age"] >= 18) & (t["age"] <= 65)) | ~t["town"].isin(["A", "B"]))
            & ~~t["income"].is_present()
            & t["member"].isin([True])
        ).count()
    },
    "SELECT health, COUNT(DISTINCT id) AS n FROM people GROUP BY 1": lambda t: {
        "n": t.group_by("health", max_rows=1).count().release()
    },
}


@pytest.mark.parametrize("query", SAME, ids=[query[:60] for query in SAME])
def test_the_plan_is_that_of_the_methods(query: str) -> None:
    table = people()
    plan = dp.Pipeline(**dp.sql(query, table))
    assert plan.fingerprint == dp.Pipeline(**SAME[query](table)).fingerprint


def frame(rows: int = 900) -> pd.DataFrame:
    draw = np.random.default_rng(5)
    ages = draw.integers(0, 101, rows).astype(float)
    ages[draw.random(rows) < 0.2] = np.nan
    visits = draw.integers(0, 21, rows).astype(float)
    visits[draw.random(rows) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "id": np.repeat(np.arange(rows // 3), 3),
            "health": draw.choice(["excellent", "good", "poor"], rows),
            "age": ages,
            "visits": visits,
            "income": draw.integers(-9, 30, rows).astype(float),
            "member": draw.random(rows) < 0.5,
            "town": draw.choice(np.array(["A", "B", "C", None]), rows),
            "card": draw.choice(np.array(["blue", "red", None]), rows),
        }
    )


ANSWERED = [
    "SELECT COUNT(*) AS a, COUNT(age) AS b, COUNT(DISTINCT id) AS c, COUNT_IF(age > 50) AS d "
    "FROM people WHERE visits > 3 OR age < 20",
    "SELECT SUM(age) AS a, AVG(age) AS b, AVG(visits) AS c FROM people WHERE NOT age >= 30",
    "SELECT AVG(visits) AS a FROM people WHERE age <> 40 AND health <> 'good'",
    "SELECT SUM(CASE WHEN age > 50 THEN visits WHEN age > 20 THEN 2 ELSE 1 END) AS a FROM people",
    "SELECT SUM(CASE health WHEN 'good' THEN 3 WHEN 'poor' THEN -1 ELSE 0 END) AS a FROM people",
    "SELECT SUM(COALESCE(age, 7) / 2 - visits * 3 + ABS(LEAST(GREATEST(income, -5), 5))) AS a "
    "FROM people",
    "SELECT COUNT(*) AS a FROM people WHERE 18 < age AND age <= visits * 10 AND town IN ('A', 'C')",
    "SELECT COUNT(*) AS a FROM people WHERE age IS NULL AND NOT visits IS NULL AND member = TRUE",
    "SELECT COUNT(*) AS a FROM people WHERE NOT (age > 50 AND visits > 3)",
    "SELECT COUNT(*) AS a FROM people WHERE age NOT BETWEEN 20 AND 60 OR NOT member",
    "SELECT health, COUNT(*) AS a, AVG(age) AS b, SUM(visits) AS c, COUNT(DISTINCT id) AS d, "
    "COUNT(age) AS e, COUNT_IF(age > 50) AS f, AVG(age * 2) AS g "
    "FROM people WHERE age > 10 OR visits > 1 GROUP BY health",
    "SELECT visits > 3 AS often, COUNT(*) AS a, SUM(age) AS b FROM people "
    "WHERE visits IS NOT NULL GROUP BY often",
    "SELECT COALESCE(card, 'white') AS kind, COUNT(*) AS a, AVG(age) AS b FROM people "
    "WHERE COALESCE(town, 'D') <> 'A' GROUP BY kind",
    "SELECT VAR_POP(age) AS a, STDDEV_POP(age) AS b FROM people WHERE age IS NOT NULL",
]


@pytest.mark.parametrize("query", ANSWERED, ids=[query[:60] for query in ANSWERED])
def test_answers_are_those_of_a_database(query: str) -> None:
    """Noise of scale 1e-9: DuckDB's answers to the same statement, missing values included."""
    duckdb = pytest.importorskip("duckdb")
    data = frame()
    noise = dp.Laplace(scale=1e-9)
    plan = dp.Pipeline(**dp.sql(query, people(), mechanism=noise))
    result = plan.simulate(seed=1, people=data)
    connection = duckdb.connect()
    connection.register("people", data.replace({np.nan: None}))
    columns = ", ".join(
        f"CAST({name} AS {kind}) AS {name}"
        for name, kind in [
            *((name, "DOUBLE") for name in ("age", "visits", "income")),
            *((name, "VARCHAR") for name in ("health", "town", "card")),
            ("member", "BOOLEAN"),
            ("id", "BIGINT"),
        ]
    )
    connection.execute(f"CREATE TABLE typed AS SELECT {columns} FROM people")
    truth = connection.execute(query.replace("FROM people", "FROM typed")).df()
    if "GROUP BY" in query:
        truth = truth.sort_values(truth.columns[0])  # the declared keys are in this order too
    for name, _ in plan.outputs:
        expected = truth[name[0]].to_numpy(float)
        assert np.asarray(result[name[0]]).ravel() == pytest.approx(expected, rel=1e-6, abs=1e-4)


def test_ordered_values_are_those_of_a_database() -> None:
    query = "SELECT MEDIAN(age) AS m, QUANTILE(age, 0.9) AS q FROM people"
    answers = dp.Pipeline(**dp.sql(query, people())).calibrate(epsilon=1e5)
    result = answers.simulate(seed=1, people=frame())
    ages = np.sort(frame()["age"].dropna())
    assert result["m"] == pytest.approx(ages[int(np.ceil(0.5 * len(ages))) - 1], abs=1)
    assert result["q"] == pytest.approx(ages[int(np.ceil(0.9 * len(ages))) - 1], abs=1)


REFUSED = {
    "SELECT * FROM people": ("1:8", "name aggregates"),
    "SELECT age FROM people": ("1:8", "private"),
    "SELECT age, COUNT(*) FROM people": ("1:8", "private"),
    "SELECT health, AVG(age) AS health FROM people": ("1:8", "private"),
    "SELECT age >= 3 AS health FROM people GROUP BY health": ("1:8", "private"),
    "SELECT COUNT(*) FROM people JOIN b ON people.age = b.age": ("1:34", "people.join"),
    "SELECT COUNT(*) FROM people, b": ("1:30", "people.join"),
    "SELECT COUNT(*) FROM (SELECT * FROM people)": ("1:30", "people.filter"),
    "SELECT COUNT(*) FROM people WHERE age IN (SELECT 1)": ("1:50", "list of values"),
    "SELECT COUNT(*) FROM people WHERE age > (SELECT 1)": ("1:49", "subquery"),
    "SELECT COUNT(*) OVER (PARTITION BY age) FROM people": ("1:8", "window"),
    "SELECT health, COUNT(*) FROM people\nGROUP BY health HAVING COUNT(*) > 3": (
        "2:24",
        "all groups",
    ),
    "SELECT COUNT(*) FROM people ORDER BY 1": ("1:38", "sort what is released"),
    "SELECT COUNT(*) FROM people LIMIT 3": ("1:35", "choose afterwards"),
    "SELECT DISTINCT health FROM people": ("1:", "GROUP BY"),
    "WITH a AS (SELECT 1) SELECT COUNT(*) FROM people": ("1:", "WHERE"),
    "SELECT COUNT(*) / 2 FROM people": ("1:8", "dp.post"),
    "SELECT COUNT(*) FILTER (WHERE age > 3) FROM people": ("1:8", "COUNT_IF"),
    "SELECT COUNT(DISTINCT age) FROM people": ("1:23", "COUNT(DISTINCT id)"),
    "SELECT AVG(DISTINCT age) FROM people": ("1:21", "DISTINCT"),
    "SELECT COUNT(age, visits) FROM people": ("1:", "one argument"),
    "SELECT SUM(income) FROM people": ("1:", "bounds"),
    "SELECT SUM(nope) FROM people": ("1:", "no column 'nope'"),
    "SELECT SUM(b.age) FROM people": ("1:", "no table 'b'"),
    "SELECT SUM(age) FROM people AS p (age, x)": ("1:", "COLUMNS"),
    "SELECT SUM(age) FROM other": ("1:", "'people'"),
    "SELECT SUM(age) FROM db.people": ("1:", "DB"),
    "SELECT SUM(age) FROM people TABLESAMPLE (10 PERCENT)": ("1:", "sample"),
    "SELECT SUM(age), SUM(age) FROM people": ("1:", "AS"),
    "SELECT SUM(age) FROM people WHERE town LIKE 'A%'": ("1:", "IN"),
    "SELECT SUM(age) FROM people WHERE age = NULL": ("1:", "IS NULL"),
    "SELECT SUM(age) FROM people WHERE town > 'A'": ("1:", "compares numbers"),
    "SELECT SUM(age) FROM people WHERE 1 = 1": ("1:", "column"),
    "SELECT SUM(age) FROM people WHERE health = 'bad'": ("1:", "no category"),
    "SELECT SUM(age) FROM people WHERE age > 1 / 0": ("1:", "number"),
    "SELECT SUM(age / visits) FROM people": ("1:", "divisor may be 0"),
    "SELECT SUM(CASE WHEN age > 3 THEN 1 END) FROM people": ("1:", "ELSE 0"),
    "SELECT SUM(CAST(age AS INT)) FROM people": ("1:", "dp.dataset"),
    "SELECT town, COUNT(*) FROM people GROUP BY town": ("1:", "no categories"),
    "SELECT COUNT(*) FROM people GROUP BY ROLLUP(health)": ("1:", "groups are by"),
    "SELECT COUNT(*) FROM people GROUP BY age > 3": ("1:", "names"),
    "SELECT health, STDDEV(age) FROM people GROUP BY health": ("1:", "partition"),
    "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY age DESC) FROM people": ("1:", "DESC"),
    "SELECT QUANTILE(age, visits) FROM people": ("1:", "order"),
    "SELECT QUANTILE(age, 2) FROM people": ("1:", "2"),
    "SELECT COUNT(*) FROM people UNION SELECT 1": ("1:1", "one SELECT"),
    "SELECT COUNT(*) FROM people; SELECT 1": ("1:1", "one SELECT"),
    "DROP TABLE people": ("1:1", "one SELECT"),
    "SELECT COUNT(* FROM people": ("1:", "not SQL"),
    "SELECT COUNT(*) FROM people WHERE " + " AND ".join(["age > 1"] * 3_000): ("1:1", "deep"),
}


@pytest.mark.parametrize("query", REFUSED, ids=[query[:60] for query in REFUSED])
def test_what_has_no_method_is_refused_with_its_place(query: str) -> None:
    place, remedy = REFUSED[query]
    with pytest.raises(dp.DeclarationError) as caught:
        dp.sql(query, people())
    message = str(caught.value)
    assert message.startswith(f"SQL {place}")
    assert remedy in message


def test_no_clause_is_passed_over() -> None:
    """Whatever else sqlglot finds in a statement is refused, and not left out of the plan."""
    import sqlglot

    reader_takes = {"expressions", "from_", "where", "group"}
    tree = sqlglot.parse_one("SELECT COUNT(*) FROM people")
    for clause in set(type(tree).arg_types) - reader_takes:
        changed = sqlglot.parse_one("SELECT COUNT(*) FROM people")
        changed.set(clause, sqlglot.exp.Literal.number(1))
        from adaptive_dp.from_sql import _Reader

        with pytest.raises(dp.DeclarationError, match="not expressible"):
            _Reader("SELECT", people(), ("people",), dp.Laplace()).outputs(changed)


def test_one_count_serves_all_averages() -> None:
    """Three averages and a count: one count and three sums, not four counts."""
    query = "SELECT COUNT(*), AVG(age), AVG(visits), AVG(age + visits) FROM people"
    plan = dp.Pipeline(**dp.sql(query, people())).calibrate(epsilon=1.0)
    assert len(plan.certify().shares) == 4


def test_bad_arguments() -> None:
    with pytest.raises(dp.DeclarationError, match="as a str"):
        dp.sql(3, people())  # type: ignore[arg-type]
    with pytest.raises(dp.DeclarationError, match="table that FROM names"):
        dp.sql("SELECT COUNT(*) FROM people", "people")  # type: ignore[arg-type]
