"""PATE on handwritten digits: split, teach, vote, learn.

    python examples/pate.py

A thousand private images teach a hundred weak teachers; a student learns from four hundred public
ones, some with labels by the teachers' noisy vote. The plan is declared and certified
before any data are read.
"""

import numpy as np
from sklearn.datasets import load_digits

import adaptive_dp as dp

PIXELS = [f"p{i}" for i in range(64)]
COLUMNS = dict.fromkeys(PIXELS, (0, 16)) | {"digit": list(range(10))}
DELTA, SIGMA, QUESTIONS, ORDER = 1e-4, 16.0, 120, 10.0
LOGISTIC = "sklearn.linear_model:LogisticRegression"
SPREADING = "sklearn.semi_supervised:LabelSpreading"


def images(x, y):
    """Return pixels and digits as columns."""
    return {name: x[:, i] for i, name in enumerate(PIXELS)} | {"digit": y}


def first(points, *, size):
    """Return the first points."""
    return points[:size]


def padded(labels, *, size):
    """Return answers of all points: -1 for those that were not asked."""
    return np.concatenate([labels, np.full(size - len(labels), -1)])


def linear(model, test):
    """Return the digits that a linear model's scores say."""
    scores = [
        model[str(d)]["intercept"] + sum(model[str(d)][name] * test[name] for name in PIXELS)
        for d in range(10)
    ]
    return np.argmax(scores, axis=0)


digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.data))
x, y = digits.data[order], digits.target[order]
private, public, test = (images(x[i:j], y[i:j]) for i, j in ((0, 997), (997, 1397), (1397, None)))

# 1. split and teach   2. vote on public rows   3. release answers   4. learn
people = dp.dataset("people", columns=COLUMNS)
teachers = dp.pate.teachers(people, PIXELS, "digit", LOGISTIC, count=100, C=10.0)
pool = teachers.points("pool", 400)
votes = teachers.votes(dp.post(first, pool, size=QUESTIONS), size=QUESTIONS)
noise = dp.pate.GNMax(sigma=SIGMA)
labels = dp.post(padded, votes.release(noise), size=400)
bound = dp.pate.sanitized(votes, noise, order=ORDER, sigma=6.0)
plan = dp.Pipeline(
    labels=labels,
    student=dp.pate.student(pool, labels, LOGISTIC),
    semi=dp.pate.student(pool, labels, SPREADING, unlabeled=True, kernel="knn"),
    these=dp.pate.sanitized_epsilon(bound, delta=DELTA),
).with_delta(DELTA)
certificate = plan.certify()
print(certificate)

result = plan.simulate(seed=1, people=private, pool=public)  # run(...) is for the real one
print(result)
asked = result["labels"] >= 0
right = np.mean(result["labels"][asked] == public["digit"][asked])
alone = dp.Pipeline(labels=labels).with_delta(DELTA).certify().epsilon
print(f"\nof all data: epsilon = {alone:.2f} for the answers, at delta = {DELTA:g};")
print(f"{certificate.epsilon:.2f} with what these data lose, which is published too:")
print(f"{result['these']:.2f} (a hundred teachers are few: it is no less than the worst case)")
print(f"answers that are right: {right:.2f}")
for name, title in (("student", "the answers"), ("semi", "the answers and all points")):
    score = np.mean(result[name].predict(test) == test["digit"])
    print(f"student of {title}: {score:.3f}")

learner = dp.NoisySGD(PIXELS, "digit", loss=dp.Multinomial(10), sampling_rate=0.2)
model = people.solve(learner, epsilon=alone, delta=DELTA)
fit = dp.Pipeline(model=model).with_delta(DELTA).simulate(seed=1, people=private)["model"]
print(f"NoisySGD at the same epsilon: {np.mean(linear(fit, test) == test['digit']):.3f}")
