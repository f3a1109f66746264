"""How far ``solver="auto"`` is from the best learner by hindsight, and from the trivial answer.

    python benchmarks/regret.py measure OUT.jsonl --from FOLDER --splits 3
    python benchmarks/regret.py table OUT.jsonl
    python benchmarks/regret.py measure TUNED.jsonl --from FOLDER --tuned
    python benchmarks/regret.py measure FEW.jsonl --from FOLDER --defaults --cut 300 --splits 8
    python benchmarks/regret.py below FEW.jsonl

`measure` fits every candidate on every set of `corpus.SETS` (``--more`` for others), on random
splits (a quarter is for tests), and appends a line for each fit: what is already there is not
fitted again. `table` prints, for each rule, the regret by set and its mean: of accuracy, or R^2,
against the candidate that is best on average over the splits. That is naive, since the best of
several noisy averages would be less on other splits. Beside it stands the regret against the
candidate that is the best on half of the splits, on the other half (`cross_fitted`), which has no
luck in it and needs some twelve splits. The rule that is learned is fitted on the other sets alone
(leave one set out). With ``--tuned`` the candidates are `dp.Auto`, and what `dp.tune` chooses in
the same budget, among learners and among settings. With ``--defaults`` they
are all learners of classes as they are, and `dp.Auto` that is told the number of rows, and that is
not. `below` prints which of them are below the trivial answer by more than the standard error of
the paired difference, and in how many cells that is expected of a learner that is exactly as good.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve
from scipy.stats import t as student
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).parent))

import corpus

import adaptive_dp as dp
from adaptive_dp.learning import auto
from adaptive_dp.learning.additive import paired
from adaptive_dp.queries.domains import Categories

EPSILONS = (0.1, 0.5, 1.0, 4.0, 8.0)
DELTA = 1e-5
MOST = 50_000
TESTED = 4_000
"""Of sets that are cut, so many rows are for tests at most."""


def candidates(features: list[str], classes: int) -> dict[str, Any]:
    """Return the learners of a number (0 classes) or of classes, by name."""
    if classes == 0:
        return {
            "constant": auto.Constant(features, "target", rows=MOST),
            "boosted_ssp": dp.BoostedSSP(features, "target"),
            "additive_model": dp.AdditiveModel(features, "target"),
            "ssp": dp.SSP(features, "target"),
            "adassp": dp.AdaSSP(features, "target"),
            "noisy_gradient_descent": dp.NoisyGradientDescent(
                features, "target", loss=dp.Squared()
            ),
        }
    loss = dp.Logistic() if classes == 2 else dp.Multinomial(classes)
    margins = {"margin_boosting": dp.MarginBoosting(features, "target")} if classes == 2 else {}
    return {
        "constant": auto.Constant(features, "target", rows=MOST),
        **margins,
        "additive_model": dp.AdditiveModel(features, "target"),
        "objective_perturbation": dp.ObjectivePerturbation(features, "target"),
        "noisy_gradient_descent": dp.NoisyGradientDescent(features, "target", loss=loss),
    }


def tuned(features: list[str], classes: int) -> dict[str, Any]:
    """Return the default, and the arguments of `dp.tune` for two ways to tune, by name."""
    learners = candidates(features, classes)
    names = ["additive_model", "noisy_gradient_descent" if classes else "boosted_ssp"]
    grid = {"clip": [0.05, 0.2, 0.5], "steps": [30, 120]}
    return {
        "auto": dp.Auto(features, "target"),
        "tournament": ([learners[name] for name in names], None),
        "grid": (learners["noisy_gradient_descent"], grid),
        "descent": learners["noisy_gradient_descent"],
    }


def defaults(features: list[str], classes: int) -> dict[str, Any]:
    """Return the learners of classes by name, as they are where nothing but columns is given."""
    own = {"loss": dp.Logistic() if classes == 2 else dp.Multinomial(classes)}
    two = {
        "margin_boosting": dp.MarginBoosting(features, "target"),
        "exponential_sampling": dp.ExponentialSampling(features, "target"),
    }
    return {
        "constant": auto.Constant(features, "target", rows=MOST),
        "auto": dp.Auto(features, "target"),
        "auto, rows unknown": dp.Auto(features, "target"),
        "additive_model": dp.AdditiveModel(features, "target"),
        "noisy_gradient_descent": dp.NoisyGradientDescent(features, "target", **own),
        "noisy_sgd": dp.NoisySGD(features, "target", **own),
        "dp_ftrl": dp.DPFTRL(features, "target", **own),
        "phased_erm": dp.PhasedERM(features, "target", **own),
        "output_perturbation": dp.OutputPerturbation(features, "target"),
        "objective_perturbation": dp.ObjectivePerturbation(features, "target"),
        **(two if classes == 2 else {}),
    }


def planned(
    name: str, learner: Any, table: dp.Table, epsilon: float, rows: int, told: bool
) -> dp.Pipeline:
    """Return the plan of a learner, or of what `dp.tune` chooses, for about so many rows.

    Parameters
    ----------
    told
        Whether `dp.AdditiveModel` has as many pairs as `dp.Auto` asks for, which is told the rows.
    """
    if isinstance(learner, tuple):
        best = dp.tune(table, *learner, epsilon=epsilon, delta=DELTA)
        model = dp.post(value_of, best)
    else:
        if isinstance(learner, dp.Auto | auto.Constant | dp.BoostedSSP) and "unknown" not in name:
            learner = evolve(learner, rows=rows)
        if isinstance(learner, dp.AdditiveModel) and told:
            pairs = paired(len(learner.features), epsilon, rows, table_classes(table))
            learner = evolve(learner, pairs=pairs)
        delta = 0.0 if isinstance(learner, dp.ExponentialSampling) else DELTA
        model = table.solve(learner, epsilon=epsilon, delta=delta)
    return dp.Pipeline(model=model).with_delta(DELTA)


def value_of(best: dict[str, Any]) -> Any:
    """Return the model that was chosen."""
    return best["value"]


def table_classes(table: dp.Table) -> int:
    """Return the number of classes of the target, 0 of a number."""
    declared = table.domain.find("target")
    return len(declared.values) if isinstance(declared, Categories) else 0


def measure(options: argparse.Namespace) -> None:
    """Append a line for each fit."""
    sets = corpus.more(options.more)
    done = set()
    if options.out.exists():
        for line in options.out.read_text("utf-8").splitlines():
            r = json.loads(line)
            done.add((r["set"], r["epsilon"], r["split"], r["learner"]))
    for name in options.sets or sets:
        try:
            these = corpus.load(name, sets, options.source)
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
            continue
        with options.out.open("a", encoding="utf-8") as out:
            for row in fits(name, these, options, done):
                print(json.dumps(row), file=out, flush=True)


def split_of(
    these: corpus.Rows, split: int, options: argparse.Namespace
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the columns' declarations, and the rows to learn from and to test on."""
    order = np.random.default_rng(split).permutation(len(these.data["target"]))
    most = MOST if options.cut is None else options.cut
    data, columns = dict(these.data), dict(these.columns)
    if these.classes == 0 or options.one_hot:
        x, bounds = corpus.one_hot(these)
        columns = {f"x{i}": b for i, b in enumerate(bounds)} | {"target": columns["target"]}
        data = {f"x{i}": x[:, i] for i in range(x.shape[1])} | {"target": data["target"]}
    for number in range(len(columns) - 1, options.noise):
        # columns that tell nothing, the same in every split
        own = np.random.default_rng([number, 7]).uniform(0, 1, len(data["target"]))
        data[f"noise{number}"], columns[f"noise{number}"] = own, (0.0, 1.0)
    most = min(most, len(order))
    train = order[most // 4 : most]
    # what a cut leaves out is for tests
    test = order[: most // 4] if options.cut is None else order[~np.isin(order, train)][:TESTED]
    return columns, [{k: v[rows] for k, v in data.items()} for rows in (train, test)]


def fits(name: str, these: corpus.Rows, options: argparse.Namespace, done: set[Any]) -> Any:
    """Yield the results of all candidates at all epsilon on all splits."""
    splits = [split_of(these, split, options) for split in range(options.splits)]
    columns, rows = splits[0][0], len(splits[0][1][0]["target"])
    features = [c for c in columns if c != "target"]
    table = dp.dataset("rows", columns=columns)
    made = tuned if options.tuned else defaults if options.defaults else candidates
    for learner_name, learner in made(features, these.classes).items():
        if options.learners and learner_name not in options.learners:
            continue
        for epsilon in options.epsilon:
            plan = None
            for split, (_, parts) in enumerate(splits):
                if (name, epsilon, split, learner_name) in done:
                    continue
                began = time.process_time()
                try:
                    plan = plan or planned(
                        learner_name, learner, table, epsilon, rows, not options.defaults
                    )
                except dp.DeclarationError as error:  # more coefficients than it draws
                    print(f"{name}, {learner_name}: {error}", file=sys.stderr)
                    break
                released = plan.simulate(seed=split, rows=parts[0])["model"]
                took = time.process_time() - began
                yield {
                    "set": name,
                    "rows": rows,
                    "features": len(features),
                    "classes": these.classes,
                    "epsilon": epsilon,
                    "split": split,
                    "learner": learner_name,
                    "seconds": round(took, 3),
                    **scores(
                        released,
                        parts[0]["target"],
                        parts[1],
                        columns["target"],
                        not options.defaults,
                    ),
                }


def scores(
    model: Any, train: Any, test: dict[str, Any], target: Any, ranked: bool
) -> dict[str, float]:
    """Return how good predictions are on the test set, and how good the trivial answer is."""
    truth = test["target"]
    if not isinstance(target, list):
        said = np.asarray(dp.predict(model, test))
        base = np.sum((truth - truth.mean()) ** 2)
        return {
            "score": float(1 - np.sum((truth - said) ** 2) / base),
            "trivial": float(1 - np.sum((truth - train.mean()) ** 2) / base),
        }
    said = np.asarray(dp.predict(model, test, classes=target))
    labels, counts = np.unique(train, return_counts=True)
    result = {
        "score": float(np.mean(said == truth)),
        "trivial": float(np.mean(truth == labels[counts.argmax()])),
    }
    if len(target) == 2 and ranked:
        result["auc"] = float(roc_auc_score(truth == target[1], dp.predict(model, test)))
    return result


Cell = tuple[str, float]
"""A set and an epsilon."""

THRESHOLDS = [0.0, *(250.0 * 2.0 ** (k / 2) for k in range(13)), float("inf")]


def table(options: argparse.Namespace) -> None:
    """Print scores and regrets by set and epsilon, and what each rule loses on average."""
    lines = [json.loads(line) for line in options.out.read_text("utf-8").splitlines()]
    for title, of in (("classes: accuracy", True), ("numbers: R^2", False)):
        own = [line for line in lines if (line["classes"] > 0) == of]
        if own:
            print(f"\n{title}")
            regrets(own)


def regrets(lines: list[dict[str, Any]]) -> None:
    """Print the table of sets of one kind."""
    means: dict[Cell, dict[str, float]] = {}
    by_split: dict[Cell, dict[str, dict[int, float]]] = {}
    trivial: dict[Cell, dict[int, float]] = {}
    facts = {line["set"]: line for line in lines}
    for name, epsilon in sorted({(r["set"], r["epsilon"]) for r in lines}):
        rows = [r for r in lines if (r["set"], r["epsilon"]) == (name, epsilon)]
        learners = sorted({r["learner"] for r in rows})
        means[name, epsilon] = {
            learner: float(np.mean([r["score"] for r in rows if r["learner"] == learner]))
            for learner in learners
        }
        by_split[name, epsilon] = {
            learner: {r["split"]: r["score"] for r in rows if r["learner"] == learner}
            for learner in learners
        }
        # each split once
        trivial[name, epsilon] = {r["split"]: r["trivial"] for r in rows}

    def said(cell: Cell, enough: float) -> str:
        return ruled(facts[cell[0]], cell[1], enough)

    def loss(cell: Cell, learner: str) -> float:
        return max(means[cell].values()) - means[cell].get(learner, -np.inf)

    def honest(cell: Cell, learner: str) -> float:
        return cross_fitted(by_split[cell], learner)

    def best(cells: list[Cell]) -> float:
        return min(THRESHOLDS, key=lambda t: sum(loss(cell, said(cell, t)) for cell in cells))

    number = any(line["classes"] == 0 for line in lines)
    own = auto.ENOUGH_OF_NUMBERS if number else auto.ENOUGH
    left_out = {name: best([cell for cell in means if cell[0] != name]) for name in sorted(facts)}
    names = sorted({learner for scores in means.values() for learner in scores})
    print(
        f"{'set':14} {'rows':>6} eps  trivial " + " ".join(f"{n[:14]:>14}" for n in names), end=""
    )
    print("  auto            naive  fitted")
    for cell, found in means.items():
        choice = said(cell, own)
        base = np.mean(list(trivial[cell].values()))
        print(
            f"{cell[0]:14} {facts[cell[0]]['rows']:6d} {cell[1]:<4g} {base:7.3f} "
            + " ".join(f"{found.get(n, np.nan):14.3f}" for n in names)
            + f"  {choice[:14]:14} {loss(cell, choice):7.3f} {honest(cell, choice):7.3f}"
        )
    print("mean regret against the best by hindsight: naive, and cross-fitted")
    for n in names:
        naive, fair = (np.mean([f(cell, n) for cell in means]) for f in (loss, honest))
        print(f"  {n}, always: {naive:.4f} {fair:.4f}")
    for epsilon in (*sorted({cell[1] for cell in means}), None):
        cells = [cell for cell in means if epsilon in (cell[1], None)]
        naive, fair = (np.mean([f(c, said(c, own)) for c in cells]) for f in (loss, honest))
        at = "" if epsilon is None else f" at epsilon {epsilon:g}"
        print(f"  auto, as it is{at}: {naive:.4f} {fair:.4f}")
    below = [cell for cell in means if under(by_split[cell][said(cell, own)], trivial[cell])]
    names_below = ", ".join(f"{name} at {epsilon:g}" for name, epsilon in below)
    print(f"  below the trivial answer by more than its error: {len(below)} of {len(means)}")
    if below:
        print(f"    {names_below}")
    ruled_out = np.mean([loss(c, said(c, left_out[c[0]])) for c in means])
    print(f"  auto, fitted to all sets but the one: {ruled_out:.4f}")
    print(f"  (thresholds {sorted(set(left_out.values()))}; of all sets {best(list(means))})")


HALVINGS = 200
"""In so many random ways splits are halved."""


def cross_fitted(scores: dict[str, dict[int, float]], learner: str) -> float:
    """Return the regret against the learner that is the best on half of the splits, on the others.

    The mean over random halves. Choosing by half of the splits is choosing worse, so that the truth
    lies between this and the naive regret, and above 0.

    Parameters
    ----------
    scores
        By learner and split.
    learner
        The one whose regret it is.
    """
    if learner not in scores:
        return float("inf")
    splits = sorted(set.intersection(*(set(own) for own in scores.values())))
    if len(splits) < 2:
        return float("nan")
    names = list(scores)
    by_name = np.array([[scores[name][split] for split in splits] for name in names])
    draw, regrets = np.random.default_rng(0), []
    for _ in range(HALVINGS):
        order = draw.permutation(len(splits))
        chosen, judged = order[: -(-len(splits) // 2)], order[-(-len(splits) // 2) :]
        best = by_name[by_name[:, chosen].mean(axis=1).argmax(), judged].mean()
        regrets.append(best - by_name[names.index(learner), judged].mean())
    return float(np.mean(regrets))


def under(scores: dict[int, float], trivial: dict[int, float]) -> bool:
    """Return whether scores are below the trivial answer's, by more than the standard error."""
    apart = np.array([scores[split] - trivial[split] for split in scores])
    return len(apart) > 1 and bool(apart.mean() < -apart.std(ddof=1) / np.sqrt(len(apart)))


def below(options: argparse.Namespace) -> None:
    """Print, by learner and epsilon, the cells below the trivial answer, and how far all are."""
    lines = [json.loads(line) for line in options.out.read_text("utf-8").splitlines()]
    cells: dict[tuple[str, float, str], list[float]] = {}
    for r in lines:
        key = r["learner"], r["epsilon"], r["set"]
        cells.setdefault(key, []).append(r["score"] - r["trivial"])
    print("learner                 epsilon  cells  below  by chance  mean of all, of those below")
    for learner, epsilon in dict.fromkeys((r["learner"], r["epsilon"]) for r in lines):
        own = {s: np.array(v) for (a, e, s), v in cells.items() if (a, e) == (learner, epsilon)}
        error = {s: v.std(ddof=1) / len(v) ** 0.5 for s, v in own.items()}
        worse = {s: v.mean() for s, v in own.items() if v.mean() < -error[s] - 1e-9}
        # a learner as good as the trivial answer is below it by more than an error so often; one
        # that always gives the same answer is not
        chance = sum(student.cdf(-1, len(v) - 1) for v in own.values() if v.any())
        said = ", ".join(f"{s} {m:.3f} ({error[s]:.3f})" for s, m in worse.items())
        mean = np.mean([v.mean() for v in own.values()])
        print(
            f"{learner:23} {epsilon:<7g} {len(own):6d} {len(worse):6d} {chance:10.1f}  {mean:+.4f}"
            f"  {said}"
        )


def ruled(facts: dict[str, Any], epsilon: float, enough: float) -> str:
    """Return what the rule says with another constant."""
    if auto.too_few(epsilon, DELTA, facts["rows"]):
        return "constant"
    if facts["classes"] == 0:
        curved = auto.strength(facts["features"], epsilon, facts["rows"]) >= enough
        return "additive_model" if curved else auto.recommended_line(epsilon, DELTA)[0]
    kept, auto.ENOUGH = auto.ENOUGH, enough
    try:
        return auto.recommended_classifier(
            facts["classes"], facts["features"], epsilon, DELTA, facts["rows"]
        )[0]
    finally:
        auto.ENOUGH = kept


def main() -> None:
    """Measure, or print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("measure")
    one.add_argument("out", type=Path)
    one.add_argument("--from", dest="source", type=Path, help="a folder of exported sets")
    one.add_argument("--more", type=Path, help="a JSON file of other sets")
    one.add_argument("--sets", nargs="*")
    one.add_argument("--learners", nargs="*")
    one.add_argument("--epsilon", nargs="*", type=float, default=EPSILONS)
    one.add_argument("--splits", type=int, default=3)
    one.add_argument("--one-hot", action="store_true", help="categories as numbers for all")
    one.add_argument("--tuned", action="store_true", help="defaults, and what dp.tune chooses")
    one.add_argument("--defaults", action="store_true", help="all learners of classes, as they are")
    one.add_argument("--cut", type=int, help="so many rows of each set, a quarter for tests")
    one.add_argument("--noise", type=int, default=0, help="so many features, by columns of noise")
    two = verbs.add_parser("table")
    two.add_argument("out", type=Path)
    three = verbs.add_parser("below")
    three.add_argument("out", type=Path)
    options = parser.parse_args()
    {"measure": measure, "table": table, "below": below}[options.verb](options)


if __name__ == "__main__":
    main()
