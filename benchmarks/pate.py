"""PATE: what a student learns at which epsilon, and which questions are worth asking.

    python benchmarks/pate.py --mnist FOLDER --adult FOLDER --plot pate.png
    python benchmarks/pate.py --mnist FOLDER --queries --seeds 3
    python benchmarks/pate.py --chosen digits --strength 1 --seeds 15
    python benchmarks/pate.py --chosen cancer --strength 10 --seeds 12

The first prints, for digits (which scikit-learn brings) and the sets whose folders are given (see
`classification.py`), the student's accuracy for each aggregator and amount of noise, with epsilon
at delta = 1e-5 in three readings: the worst case over all data; sanitized, which is about these
data and includes the cost of publishing it; and data-dependent, which is private itself and shown
here because the data are public. Beside them: NoisySGD on the same rows, and the model that sees
the private labels. Teachers are trained once, outside of plans, and vote through
`dp.pate.ballots`. Images are averaged to 14 x 14 pixels.

The second compares questions chosen at random (PSQ) with questions that students disagree on (ASQ):
1447 and 434 of them, as in the table of Liu et al. 2021 for real-sim, a set of sparse documents
that no package contains. In its place: even or odd digits of MNIST, 500 teachers. Everything is in
one plan.

The third compares them at the same number of questions, noise and epsilon, on two sets that
scikit-learn brings: each seed splits the rows anew into private, public and held-out ones, and
draws the noise of both anew; printed is the mean difference and its standard error. Questions are
chosen whatever the noise, where `dp.pate.active` by itself asks at random if there is much.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import adaptive_dp as dp
from adaptive_dp.pate.ensembles import make_features, public_rows

DELTA = 1e-5
LOGISTIC = "sklearn.linear_model:LogisticRegression"
SPREADING = "sklearn.semi_supervised:LabelSpreading"


def main() -> None:
    """Print tables, and draw the first."""
    warnings.simplefilter("ignore")
    options = arguments()
    if options.queries:
        queries(options)
        return
    if options.chosen is not None:
        chosen(options)
        return
    curves = {}
    for name, data_set in sets(options).items():
        curves[name] = compare(name, *data_set, options)
        if options.plot:
            plot(curves, options.plot)


def arguments() -> argparse.Namespace:
    """Return the command's arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", type=Path, help="the folder of the four idx files")
    parser.add_argument("--adult", type=Path, help="the folder of adult.data and adult.test")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--queries", action="store_true", help="random against chosen questions")
    parser.add_argument(
        "--chosen",
        nargs="*",
        choices=["cancer", "digits"],
        help="the same at as many questions; both sets if none is named",
    )
    parser.add_argument("--strength", type=float, default=10.0, help="C of that logistic student")
    parser.add_argument("--plot", type=Path, help="where to draw the first table")
    parser.add_argument("--no-sgd", action="store_true", help="leave NoisySGD out")
    return parser.parse_args()


def sets(options: argparse.Namespace) -> dict[str, tuple[Any, ...]]:
    """Return columns, target, private and public rows, teachers, questions and the student."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.data))
    x, y = bunch.data[order], bunch.target[order]
    columns: dict[str, Any] = {f"p{i}": (0, 16) for i in range(64)} | {"digit": list(range(10))}
    spread = {"model": SPREADING, "unlabeled": True, "kernel": "knn"}
    plain = {"model": LOGISTIC, "C": 1.0}
    data_sets: dict[str, tuple[Any, ...]] = {
        "digits": (columns, "digit", *halves(x, y, 997), 100, 150, spread)
    }
    other = shared()
    if options.mnist:
        columns, train, test = small(*other.mnist(options.mnist)[2:])
        data_sets["MNIST"] = (columns, "digit", train, test, 250, 1000, plain)
    if options.adult:
        columns, target, train, test = other.adult(options.adult)
        data_sets["Adult"] = (columns, target, train, test, 250, 500, plain)
    return data_sets


def shared() -> Any:
    """Return the benchmark of classifiers, which reads the sets."""
    file = Path(__file__).with_name("classification.py")
    spec = importlib.util.spec_from_file_location("classification", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def halves(x: Any, y: Any, size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first rows, and the rest."""
    return pixels(x[:size], y[:size]), pixels(x[size:], y[size:])


def pixels(x: Any, y: Any) -> dict[str, Any]:
    """Return images as columns."""
    return {f"p{i}": x[:, i] for i in range(x.shape[1])} | {"digit": y}


def small(train: Any, test: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return columns and both sets, images averaged to 14 x 14."""
    made = []
    for images in (train, test):
        x = np.stack([images[f"p{i}"] for i in range(784)], axis=1)
        x = x.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(len(x), -1)
        made.append(pixels(x, images["digit"]))
    columns: dict[str, Any] = {f"p{i}": (0, 255) for i in range(196)}
    return columns | {"digit": list(range(10))}, made[0], made[1]


def part(data: dict[str, Any], rows: Any) -> dict[str, Any]:
    """Return some rows."""
    return {name: np.asarray(values)[rows] for name, values in data.items()}


def compare(
    name: str,
    columns: dict[str, Any],
    target: str,
    train: dict[str, Any],
    test: dict[str, Any],
    count: int,
    questions: int,
    model: dict[str, Any],
    options: argparse.Namespace,
) -> dict[str, list[tuple[float, float]]]:
    """Print and return epsilon and accuracy by aggregator and reading."""
    start = time.perf_counter()
    values = columns[target]
    features = [c for c in columns if c != target]
    inside = {c: columns[c] for c in features}
    x, y = made(train, inside), np.array([values.index(v) for v in np.asarray(train[target])])
    at, truth = made(test, inside), np.array([values.index(v) for v in np.asarray(test[target])])
    size = min(len(at) // 2, 2000) if model["model"] == SPREADING else questions
    votes = voted(x, y, at[:questions], count, len(values))
    print(
        f"\n{name}: {len(y)} private rows, {count} teachers, {questions} questions; teachers are "
        f"right on {np.mean(votes == truth[:questions]):.3f}, most of them on "
        f"{np.mean(most(votes, len(values)) == truth[:questions]):.3f}; "
        f"trained in {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    ballots = dp.pate.ballots(
        "votes", teachers=count, questions=questions, classes=len(values), neighbors="add_remove"
    )
    # teachers whose points are public rows with the features; these here vote from outside
    people = dp.dataset("people", columns=columns)
    pool = dp.pate.teachers(people, features, target, LOGISTIC, count=count).points("pool", size)
    public = part(test, slice(size))
    curves: dict[str, list[tuple[float, float]]] = {}
    for title, mechanism in mechanisms(count, questions).items():
        labels = ballots.release(mechanism)
        everywhere = dp.post(padded, labels, size=size)
        plan = dp.Pipeline(labels=labels, student=dp.pate.student(pool, everywhere, **model))
        plan = plan.with_delta(DELTA)
        bare = dp.Pipeline(labels=labels).with_delta(DELTA)
        right, accuracies, answered = [], [], []
        for seed in range(options.seeds):
            result = plan.simulate(seed=seed, votes=votes, pool=public)
            given = result["labels"] >= 0
            score = np.mean(result["student"].positions(at[size:]) == truth[size:])
            right.append(score if given.any() else math.nan)
            accuracies.append(np.mean((result["labels"] == truth[:questions])[given]))
            answered.append(np.mean(given))
        epsilons = {"worst case": bare.certify().epsilon}
        epsilons |= readings(ballots, mechanism, bare, votes)
        kind = title.partition(" ")[0]
        for reading, epsilon in epsilons.items():
            curves.setdefault(f"{kind}, {reading}", []).append((epsilon, float(np.mean(right))))
        line = "  ".join(f"{k} {v:8.2f}" for k, v in epsilons.items())
        print(
            f"{title:28s} answered {np.mean(answered):.2f} right {np.mean(accuracies):.3f} student "
            f"{np.mean(right):.3f}  epsilon: {line}",
            flush=True,
        )
    if not options.no_sgd:
        curves["NoisySGD"] = noisy_sgd(columns, target, train, part(test, slice(size, None)))
    curves["labels seen"] = [(math.nan, seen(x, y, at[size:], truth[size:]))]
    print(f"logistic regression that sees the labels: {curves['labels seen'][0][1]:.3f}")
    return curves


def made(data: dict[str, Any], columns: dict[str, Any]) -> Any:
    """Return features as teachers get them."""
    from adaptive_dp.queries.domains import column

    read = {k: column(k, v) for k, v in columns.items()}
    rows = public_rows({k: np.asarray(data[k]) for k in columns}, read)
    return make_features(rows, tuple(columns), None, read)


def voted(x: Any, y: Any, at: Any, count: int, classes: int) -> Any:
    """Return the votes of teachers on disjoint random parts, shape (count, questions)."""
    from sklearn.linear_model import LogisticRegression

    whose = np.random.default_rng(1).integers(count, size=len(y))
    votes = np.zeros((count, len(at)), dtype=np.int64)
    for k in range(count):
        mine = whose == k
        if len(np.unique(y[mine])) > 1:
            votes[k] = LogisticRegression(C=10.0, max_iter=50).fit(x[mine], y[mine]).predict(at)
        elif mine.any():
            votes[k] = y[mine][0]
    return votes


def most(votes: Any, classes: int) -> Any:
    """Return which class has the most votes."""
    return np.stack([(votes == c).sum(axis=0) for c in range(classes)]).argmax(axis=0)


def padded(labels: Any, *, size: int) -> Any:
    """Return answers of all points: none of those that were not asked."""
    return np.concatenate([labels, np.full(size - len(labels), -1)]).astype(np.int64)


def mechanisms(count: int, questions: int) -> dict[str, Any]:
    """Return aggregators by a title whose first word is their name."""
    pate, aggregators = dp.pate, {}
    for share in (0.06, 0.12, 0.24):
        sigma = share * count
        order = chosen_order(sigma, questions)
        budget = 0.25 * questions * order / sigma**2
        check = {"threshold": round(0.6 * count), "sigma_check": 2.5 * sigma}
        tested = {"order": order, "budget": budget, "epsilon": 0.5, "failure": DELTA / 10}
        aggregators[f"LNMax b={sigma / math.sqrt(2):.3g}"] = pate.LNMax(scale=sigma / math.sqrt(2))
        aggregators[f"GNMax sigma={sigma:g}"] = pate.GNMax(sigma=sigma)
        aggregators[f"Confident-GNMax sigma={sigma:g}"] = pate.ConfidentGNMax(sigma=sigma, **check)
        aggregators[f"Tested-GNMax sigma={sigma:g}"] = pate.TestedGNMax(sigma=sigma, **tested)
    for epsilon in (4.0, 8.0):
        aggregators[f"StableVotes epsilon={epsilon:g}"] = pate.StableVotes(
            epsilon=epsilon, failure=DELTA / 10, failures=max(1, questions // 10)
        )
    return dict(sorted(aggregators.items(), key=lambda pair: pair[0].partition(" ")[0]))


def chosen_order(sigma: float, questions: int) -> float:
    """Return an order that suits a quarter of what is lost at worst: no vote is looked at."""
    return 1 + 2 * math.sqrt(math.log(1 / DELTA) * sigma**2 / questions)


def readings(ballots: Any, mechanism: Any, plan: Any, votes: Any) -> dict[str, float]:
    """Return epsilon as it is published of these data, and as it depends on them."""
    if not hasattr(mechanism, "sigma"):
        return {}
    try:
        order = chosen_order(mechanism.sigma, ballots.domain.questions)
        bound = dp.pate.sanitized(ballots, mechanism, order=order, sigma=2 * math.sqrt(order))
    except dp.DeclarationError:  # nothing is proven of it but the worst case
        return {}
    released = dp.Pipeline(epsilon=dp.pate.sanitized_epsilon(bound, delta=DELTA)).with_delta(DELTA)
    private = dp.pate.private_epsilon(plan, delta=DELTA, seed=0, votes=votes)
    return {
        "sanitized": float(released.simulate(seed=0, votes=votes)["epsilon"]),
        "data-dependent": private.reveal(),  # of public data: see the module
    }


def noisy_sgd(
    columns: dict[str, Any], target: str, train: dict[str, Any], test: dict[str, Any]
) -> list[tuple[float, float]]:
    """Return epsilon and accuracy of NoisySGD."""
    values, features = columns[target], [c for c in columns if c != target]
    loss = dp.Logistic() if len(values) == 2 else dp.Multinomial(len(values))
    people, points = dp.dataset("people", columns=columns), []
    rate = min(1.0, max(0.01, 256 / len(train[target])))
    for epsilon in (1.0, 4.0, 16.0):
        learner = dp.NoisySGD(features, target, loss=loss, sampling_rate=rate)
        plan = dp.Pipeline(fit=people.solve(learner, epsilon=epsilon, delta=DELTA))
        model = plan.with_delta(DELTA).simulate(seed=0, people=train)["fit"]
        points.append((epsilon, accuracy(model, values, target, inside(columns, target), test)))
        print(f"NoisySGD {points[-1][1]:.3f} at epsilon {epsilon:g}", flush=True)
    return points


def inside(columns: dict[str, Any], target: str) -> dict[str, Any]:
    """Return the features' declarations."""
    return {k: v for k, v in columns.items() if k != target}


def accuracy(
    model: Any, values: list[Any], target: str, columns: dict[str, Any], test: dict[str, Any]
) -> float:
    """Return how often a linear model's best class is the row's."""
    models = [model] if "intercept" in model else [model[str(v)] for v in values]
    scores = []
    for one in models:
        score = np.full(len(np.asarray(test[target])), float(one["intercept"]))
        for name, declared in columns.items():
            given = np.asarray(test[name])
            if isinstance(declared, list):
                score += sum(one[f"{name}={v}"] * (given == v) for v in declared)
            else:
                score += one[name] * given.astype(float)
        scores.append(score)
    best = np.argmax(scores, axis=0) if len(scores) > 1 else (scores[0] > 0).astype(int)
    return float(np.mean(np.array(values)[best] == np.asarray(test[target])))


def seen(x: Any, y: Any, at: Any, truth: Any) -> float:
    """Return the accuracy of a model without privacy, that sees the private labels."""
    from sklearn.linear_model import LogisticRegression

    return float(LogisticRegression(max_iter=100).fit(x, y).score(at, truth))


def plot(results: dict[str, dict[str, list[tuple[float, float]]]], file: Path) -> None:
    """Draw accuracy against epsilon: worst cases above, readings of GNMax below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, rows = pyplot.subplots(
        2, len(results), figsize=(1.5 + 4 * len(results), 8), squeeze=False, layout="constrained"
    )
    colors = {
        "LNMax": "C7",
        "GNMax": "C0",
        "Confident-GNMax": "C2",
        "Tested-GNMax": "C4",
        "StableVotes": "C1",
        "NoisySGD": "k",
    }
    styles = {"worst case": "-", "sanitized": "--", "data-dependent": ":"}
    for i, (name, curves) in enumerate(results.items()):
        above, below = rows[0][i], rows[1][i]
        for title, points in curves.items():
            kind, _, reading = title.partition(", ")
            if kind not in colors:
                continue
            points = sorted(p for p in points if p[0] < 100 and not math.isnan(p[1]))
            if not points:  # nothing was answered
                continue
            line = {"color": colors[kind], "marker": "o", "markersize": 4}
            if reading in ("", "worst case"):
                above.plot(*zip(*points, strict=True), label=kind, **line)
            if kind in ("GNMax", "Confident-GNMax"):
                below.plot(*zip(*points, strict=True), styles[reading], label=title, **line)
        for axes in (above, below):
            line = {"color": "0.6", "linewidth": 1, "linestyle": "-."}
            axes.axhline(curves["labels seen"][0][1], label="labels seen, no privacy", **line)
            axes.set_xscale("log")
            axes.set_xlim(0.8, 60)
            axes.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
            axes.minorticks_off()
            axes.grid(alpha=0.25)
            axes.set_xlabel(f"epsilon, at delta = {DELTA:g}")
        above.set_title(f"{name}: certified for all data")
        below.set_title(f"{name}: what is known of these data")
    for row in rows:
        row[0].set_ylabel("accuracy of the student")
        handles, labels = row[-1].get_legend_handles_labels()
        row[-1].legend(handles, labels, loc="center left", bbox_to_anchor=(1.02, 0.5))
    figure.savefig(file, dpi=90)
    print(f"drawn: {file}")


def queries(options: argparse.Namespace) -> None:
    """Print the table of passive and active questions."""
    if not options.mnist:
        raise SystemExit("--queries needs --mnist FOLDER")
    columns, train, test = small(*shared().mnist(options.mnist)[2:])
    columns["digit"] = ["even", "odd"]
    for data in (train, test):
        data["digit"] = np.array(["even", "odd"])[data["digit"] % 2]
    count, kinds = 500, {"PSQ": 1447, "ASQ": 434}
    people = dp.dataset("people", columns=columns)
    features = [c for c in columns if c != "digit"]
    taught = dp.pate.teachers(people, features, "digit", LOGISTIC, count=count, C=1.0, max_iter=50)
    pool = taught.points("pool", 8000)
    sigmas = {kind: {0.0: 1e-3} for kind in kinds}
    for kind, size in kinds.items():
        for epsilon in (0.5, 1.0, 2.0):
            votes = dp.pate.ballots("votes", teachers=count, questions=size, classes=2)
            free = dp.Pipeline(x=votes.release(dp.pate.GNMax(sigma=dp.Free("sigma"))))
            plan = free.calibrate(epsilon=epsilon, delta=DELTA)
            sigmas[kind][epsilon] = plan.outputs[0][1].operation.mechanism.sigma  # type: ignore[attr-defined]
    points: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for seed in range(options.seeds):
        outputs: dict[str, Any] = {}
        for kind, size in kinds.items():
            for epsilon, sigma in sigmas[kind].items():
                vote = dp.pate.GNMax(sigma=sigma)
                if kind == "PSQ":
                    labels = dp.pate.passive(taught, pool, vote, size=size, seed=seed)
                else:
                    labels = dp.pate.active(
                        taught,
                        pool,
                        vote,
                        LOGISTIC,
                        rounds=14,
                        batch=31,
                        members=8,
                        seed=seed,
                        noisiest=math.inf,
                    )
                student = dp.pate.student(pool, labels, LOGISTIC, C=0.1)
                outputs[f"{kind} {epsilon:g}"] = {"labels": labels, "student": student}
        plan = dp.Pipeline(**outputs).with_delta(DELTA)
        public = part(test, slice(8000))
        order = {k: v for k, v in public.items() if k != "digit"}
        start = time.perf_counter()
        result = plan.simulate(seed=seed, people=train, pool=order)
        print(f"seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
        rest, truth = part(test, slice(8000, None)), np.asarray(public["digit"]) == "odd"
        for kind in kinds:
            for epsilon in sigmas[kind]:
                got = result[f"{kind} {epsilon:g}"]
                answered = got["labels"] >= 0
                right = float(np.mean(got["labels"][answered] == truth[answered]))
                score = float(np.mean(got["student"].predict(rest) == rest["digit"]))
                points.setdefault((kind, epsilon), []).append((score, right))
    print("| method | questions | epsilon | sigma | answers right | student |")
    print("|---|---|---|---|---|---|")
    for (kind, epsilon), pairs in sorted(points.items(), key=lambda pair: (pair[0][1], pair[0][0])):
        scores, right = zip(*pairs, strict=True)
        error = np.std(scores, ddof=1) / math.sqrt(len(scores)) if len(scores) > 1 else math.nan
        name, noise = f"{epsilon:g}" if epsilon else "inf", f"{sigmas[kind][epsilon]:.2f}"
        print(
            f"| {kind}{'' if epsilon else '-NP'} | {kinds[kind]} | {name} | "
            f"{noise if epsilon else '0'} | {np.mean(right):.3f} | {np.mean(scores):.4f} "
            f"({error:.4f}) |"
        )


def chosen(options: argparse.Namespace) -> None:
    """Print chosen against random questions, as many of both, by set, student and epsilon."""
    from sklearn.datasets import load_breast_cancer, load_digits

    print("| set | student | epsilon | answers right | at random | chosen | difference |")
    print("|---|---|---|---|---|---|---|")
    for name, bunch, sizes, count, rounds, batch in (
        ("cancer", load_breast_cancer(), (300, 150), 25, 4, 10),
        ("digits", load_digits(), (900, 500), 50, 10, 10),
    ):
        if options.chosen and name not in options.chosen:
            continue
        x, y = bunch.data, bunch.target
        low, high = x.min(axis=0), x.max(axis=0)
        columns: dict[str, Any] = {
            f"p{i}": (float(a), float(max(b, a + 1)))
            for i, (a, b) in enumerate(zip(low, high, strict=True))
        } | {"digit": sorted(set(y.tolist()))}
        people, features = dp.dataset("people", columns=columns), [f"p{i}" for i in range(len(low))]
        taught = dp.pate.teachers(people, features, "digit", LOGISTIC, count=count, max_iter=50)
        pool = taught.points("pool", sizes[1])
        for title, model, settings in (
            ("logistic", LOGISTIC, {"C": options.strength, "max_iter": 100}),
            ("naive Bayes", "sklearn.naive_bayes:GaussianNB", {"var_smoothing": 1e-2}),
        ):
            for epsilon in (1.0, 2.0, 4.0, 8.0, 16.0):
                votes = dp.pate.ballots(
                    "v", teachers=count, questions=rounds * batch, classes=len(columns["digit"])
                )
                free = dp.Pipeline(x=votes.release(dp.pate.GNMax(sigma=dp.Free("sigma"))))
                found = free.calibrate(epsilon=epsilon, delta=DELTA).outputs[0][1]
                vote = found.operation.mechanism  # type: ignore[attr-defined]
                rows = []
                for seed in range(options.seeds):
                    order = np.random.default_rng(seed).permutation(len(y))
                    private, public, rest = np.split(order, np.cumsum(sizes))
                    asked = {
                        "at random": dp.pate.passive(
                            taught, pool, vote, size=rounds * batch, seed=seed
                        ),
                        "chosen": dp.pate.active(
                            taught, pool, vote, model, rounds=rounds, batch=batch, seed=seed,
                            noisiest=math.inf, **settings,
                        ),
                    }  # fmt: skip
                    outputs = {
                        kind: {
                            "labels": labels,
                            "student": dp.pate.student(pool, labels, model, **settings),
                        }
                        for kind, labels in asked.items()
                    }
                    plan = dp.Pipeline(**outputs).with_delta(DELTA)
                    given = {k: v for k, v in pixels(x[public], y[public]).items() if k != "digit"}
                    result = plan.simulate(
                        seed=seed, people=pixels(x[private], y[private]), pool=given
                    )
                    line = []
                    for kind in asked:
                        labels = result[kind]["labels"]
                        at = labels >= 0
                        line.append(
                            np.mean(np.array(columns["digit"])[labels[at]] == y[public][at])
                        )
                    for kind in asked:
                        guess = result[kind]["student"].predict(pixels(x[rest], y[rest]))
                        line.append(np.mean(guess == y[rest]))
                    rows.append(line)
                right, right_chosen, random_, active_ = np.mean(rows, axis=0)
                apart = np.array(rows)[:, 3] - np.array(rows)[:, 2]
                error = np.std(apart, ddof=1) / math.sqrt(len(apart))
                print(
                    f"| {name} | {title} | {epsilon:g} | {right:.2f}, {right_chosen:.2f} | "
                    f"{random_:.3f} | {active_:.3f} | {apart.mean():+.3f} ({error:.3f}) |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
